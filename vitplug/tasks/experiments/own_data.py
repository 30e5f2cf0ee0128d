"""Reads a data set of one's own: how its folders lie, which classes it has and how many images.

Three layouts, one for each task::

    detection        train/ val/ [test/], perhaps in images/, and COCO files: annotations/*train*.json, *train*.json
                     beside the folders, or one in each folder (_annotations.coco.json)
    segmentation     images/ and masks/ with train/ and val/ in each, or train/ and val/ with images/ and masks/ in each
    classification   train/ and val/ with one folder for each class

Unreadable files are refused by name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from vitplug.files.annotations import check_annotation_file
from vitplug.files.folders import IMAGE_SUFFIXES, SHOWN_EXAMPLES, check_folder, check_pairs, files_in, names_in
from vitplug.files.limits import wrong_names

from ..labels import IGNORED_LABEL

# Names that the folders have in wide-spread data sets and exports; a year may follow the name of a split (train2017).
SPLITS = {'train': ('train', 'training'), 'val': ('val', 'valid', 'validation'), 'test': ('test', 'testing')}
IMAGE_FOLDERS = ('images', 'imgs', 'img', 'img_dir')
MASK_FOLDERS = ('masks', 'labels', 'annotations', 'ann_dir')
# The part of `IMAGE_SUFFIXES` that mmpretrain looks for in folders of classes.
CLASSIFIED_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif')
# Modes of PIL whose pixels are one number, which mmseg takes for the class.
LABEL_MODES = ('1', 'L', 'P', 'I', 'I;16', 'I;16B')


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    Attributes:
        settings: Where its files lie, as its task's class of data sets takes it: `ann_file`, `data_prefix` and so on,
            relative to the root.
        num_images: How many images it has.
    """

    settings: Mapping
    num_images: int


@dataclass(frozen=True)
class OwnData:
    """A data set as it lies on the disk.

    Attributes:
        root: Its folder.
        classes: Names of its classes, by label.
        splits: `train`, `val` and, where there is one with annotations, `test`.
        has_masks: Whether every object has a mask (detection).
    """

    root: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Split]
    has_masks: bool = False


def without_names(read: Callable[[Path], OwnData]) -> Callable[[Path, Sequence[str]], OwnData]:
    """A reader of data that has names of its own; it refuses names of classes from the command line."""

    def read_named(root: Path, names: Sequence[str]) -> OwnData:
        if names:
            raise ValueError('--classes: only label maps have no names of their own; leave it out')
        return read(root)

    return read_named


# --- folders ---


def _aliases(names: Sequence[str], number: str = r'\d*') -> re.Pattern:
    return re.compile(rf'(?:{"|".join(names)}){number}', re.IGNORECASE)


def split_folders(root: Path) -> dict[str, Path]:
    """The folders of the splits in a folder.

    Raises:
        FileNotFoundError: if there is none for `train` or `val`; names those that there are.
        ValueError: if a split has two.
    """
    if not root.is_dir():
        raise FileNotFoundError(f'no such data folder: {root}')
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    by_split = {}
    for split, names in SPLITS.items():
        matches = [folder for folder in folders if _aliases(names).fullmatch(folder.name)]
        if len(matches) > 1:
            raise ValueError(f'two folders for {split}: {matches[0]} and {matches[1]}: keep one')
        if matches:
            by_split[split] = matches[0]
    missing = [split for split in ('train', 'val') if split not in by_split]
    if missing:
        raise FileNotFoundError(
            f'{root} has no folder for {" and ".join(missing)}: expected {" and ".join(SPLITS[missing[0]][:2])} or the '
            f'like, found {", ".join(folder.name for folder in folders) or "no folder"}'
        )
    return by_split


def _only_folder(root: Path, names: Sequence[str], what: str) -> Path:
    """The one folder of some names.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if there are several.
    """
    existing = [root / name for name in names if (root / name).is_dir()]
    if not existing:
        raise FileNotFoundError(f'{root} has no folder of {what}: expected one of {", ".join(names)}')
    if len(existing) > 1:
        raise ValueError(f'two folders of {what}: {existing[0]} and {existing[1]}: keep one')
    return existing[0]


def _images(folder: Path) -> list[str]:
    """Paths of images below a folder, relative to it, in order."""
    check_folder(folder)
    return names_in(folder, IMAGE_SUFFIXES)


# --- detection ---


def read_detection(root: Path) -> OwnData:
    """Reads COCO files and the folders of their images.

    Raises:
        FileNotFoundError: if folders, annotations or images are missing.
        ValueError: if a split has two annotation files, a file is no COCO file, the files have other categories, or
            only some objects have masks.
    """
    inside = root / 'images'
    folders = split_folders(inside if inside.is_dir() else root)
    files = {split: _coco_file(root, split, folder) for split, folder in folders.items()}
    contents = {split: _read_coco(path) for split, path in files.items() if path}
    names = {split: _category_names(files[split], content) for split, content in contents.items()}
    for split, others in names.items():
        if others != names['train']:
            raise ValueError(
                f'{files[split]} has the categories {others}, but {files["train"]} has {names["train"]}: all files '
                'need the same ones in the same order'
            )
    unused = _unused_parents(contents.values())
    splits = {
        split: Split(
            dict(
                ann_file=str(files[split].relative_to(root)),
                data_prefix=dict(img=_image_prefix(root, folders[split], files[split], content)),
            ),
            len(content['images']),
        )
        for split, content in contents.items()
    }
    classes = tuple(name for name in names['train'] if name not in unused)
    return OwnData(root, classes, splits, _have_masks({files[split]: content for split, content in contents.items()}))


def _have_masks(contents: Mapping[Path, Mapping]) -> bool:
    """Whether the objects of COCO files have masks.

    Raises:
        ValueError: if only some do.
    """
    objects = [(path, annotation) for path, content in contents.items() for annotation in content['annotations']]
    bare = [(path, annotation['id']) for path, annotation in objects if not annotation.get('segmentation')]
    if 0 < len(bare) < len(objects):
        path, number = bare[0]
        raise ValueError(
            f'{path}, annotation {number} has no segmentation, and {len(objects) - len(bare)} of {len(objects)} '
            'objects have one: give it one, or remove all of them to train boxes alone'
        )
    return not bare


def _coco_file(root: Path, split: str, folder: Path) -> Path | None:
    """The annotation file of a split; None for a test without one.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if there are several.
    """
    word = _aliases(SPLITS[split])
    named = [*files_in(root, '.json'), *files_in(root / 'annotations', '.json')]
    candidates = [path for path in named if any(map(word.fullmatch, re.split(r'[^a-zA-Z0-9]+', path.stem)))]
    candidates += files_in(folder, '.json')
    if len(candidates) > 1:
        raise ValueError(f'two COCO files for {split}: {candidates[0]} and {candidates[1]}: move one elsewhere')
    if not candidates and split != 'test':
        raise FileNotFoundError(
            f'no annotations for {split}: expected a COCO file such as {root}/annotations/instances_{split}.json or '
            f'{folder}/_annotations.coco.json'
        )
    return candidates[0] if candidates else None


def _read_coco(path: Path) -> dict:
    """The content of a COCO file.

    Raises:
        ValueError: if it is none.
    """
    content = check_annotation_file(path)
    needed = dict(images=('id', 'file_name'), annotations=('id', 'image_id', 'category_id'), categories=('id', 'name'))
    for key, fields in needed.items():
        entries = content.get(key) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f'{path} is no COCO file: expected lists of images, annotations and categories')
        for entry in entries:
            if any(field not in entry for field in fields):
                raise ValueError(f'{path}: an entry of {key} lacks one of {", ".join(fields)}: {str(entry)[:80]}')
    for what, reason in wrong_names(content):
        raise ValueError(f'{path}, {what}: {reason}')
    return content


def _category_names(path: Path, content: Mapping) -> list[str]:
    """The names, in the order of the file, which is the order in which mmdet numbers them.

    Raises:
        ValueError: if a name occurs twice.
    """
    names = [category['name'] for category in content['categories']]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f'{path}: categories that occur more than once: {", ".join(twice)}: rename one of them')
    return names


def _unused_parents(contents: Iterator[Mapping]) -> set[str]:
    """Categories without annotations that are the supercategory of another one, as some exports have them."""
    contents = list(contents)
    used = {annotation['category_id'] for content in contents for annotation in content['annotations']}
    categories = [category for content in contents for category in content['categories']]
    parents = {category.get('supercategory') for category in categories if category['id'] in used}
    return {category['name'] for category in categories if category['id'] not in used} & parents


def _image_prefix(root: Path, folder: Path, path: Path, content: Mapping) -> str:
    """The folder, below the root, that the names of a COCO file start from.

    Raises:
        FileNotFoundError: if the first image is in none of those it may be in.
    """
    name = content['images'][0]['file_name']
    for parent in (folder, folder.parent, root):
        if (parent / name).is_file():
            prefix = str(parent.relative_to(root))
            return '' if prefix == '.' else f'{prefix}/'
    raise FileNotFoundError(f'{path}: its image {name} is neither in {folder} nor in {folder.parent} nor in {root}')


# --- segmentation ---


def read_segmentation(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Reads images and label maps.

    Args:
        root: The folder of the data.
        names: Names of the classes; without them, as many as the maps have, named by their labels.

    Raises:
        FileNotFoundError: if a folder is missing.
        ValueError: if images and maps do not match, or a map has colours or labels that are no classes.
    """
    pairs = dict(_image_and_mask_folders(root))
    splits, labels = {}, {}
    for split, (images, masks) in pairs.items():
        image_suffix, mask_suffix, stems = _suffixes(images, masks)
        for stem in tqdm(stems, desc=f'{split} masks', disable=None):
            path = masks / f'{stem}{mask_suffix}'
            labels |= dict.fromkeys(_labels(path) - labels.keys(), path)
        prefix = dict(img_path=str(images.relative_to(root)), seg_map_path=str(masks.relative_to(root)))
        settings = dict(data_prefix=prefix, img_suffix=image_suffix, seg_map_suffix=mask_suffix)
        splits[split] = Split(settings, len(stems))
    return OwnData(root, _class_names(labels, names), splits)


def _image_and_mask_folders(root: Path) -> Iterator[tuple[str, tuple[Path, Path]]]:
    if not root.is_dir():
        raise FileNotFoundError(f'no such data folder: {root}')
    if not any((root / name).is_dir() for name in IMAGE_FOLDERS):
        for split, folder in split_folders(root).items():
            yield split, (_only_folder(folder, IMAGE_FOLDERS, 'images'), _only_folder(folder, MASK_FOLDERS, 'masks'))
        return
    images = split_folders(_only_folder(root, IMAGE_FOLDERS, 'images'))
    masks = split_folders(_only_folder(root, MASK_FOLDERS, 'masks'))
    for split in images:
        if split not in masks:
            if split != 'test':  # a test may be without masks
                raise FileNotFoundError(f'{images[split]} has no masks beside it in {masks["train"].parent}')
            continue
        yield split, (images[split], masks[split])


def _suffixes(images: Path, masks: Path) -> tuple[str, str, list[str]]:
    """Endings of the names of images and of their masks, and the names without endings.

    Raises:
        ValueError: if there are several endings, or images without masks.
    """
    names, mask_names = _images(images), _images(masks)
    endings = sorted({Path(name).suffix for name in names})
    if len(endings) != 1:
        raise ValueError(
            f'{images} has images that end in {", ".join(endings) or "nothing known"}: expected one ending'
        )
    stems = [name.removesuffix(endings[0]) for name in names]
    tails = [name.removeprefix(stems[0]) for name in mask_names if name.startswith(stems[0])]
    whole = set(mask_names)
    fitting = [tail for tail in tails if all(f'{stem}{tail}' in whole for stem in stems)]
    ending = fitting[0] if fitting else Path(mask_names[0] if mask_names else '.png').suffix
    check_pairs((images, endings[0]), (masks, ending))
    return endings[0], ending, stems


def _labels(path: Path) -> set[int]:
    """The numbers in a label map.

    Raises:
        ValueError: if it has colours, or cannot be read.
    """
    try:
        with Image.open(path) as mask:
            if mask.mode not in LABEL_MODES:
                raise ValueError(
                    f'{path} has colours ({mask.mode}): expected a label map of one channel whose pixels are class '
                    'indices'
                )
            return {int(label) for label in np.unique(np.asarray(mask))}
    except (OSError, SyntaxError) as error:
        raise ValueError(f'{path} cannot be read as an image: {error}') from error


def _class_names(labels: Mapping[int, Path], names: Sequence[str]) -> tuple[str, ...]:
    """A name for each label.

    Args:
        labels: Label maps by a label that they have.
        names: The names, if they are known.

    Raises:
        ValueError: if labels are no indices of classes.
    """
    present = sorted(labels.keys() - {IGNORED_LABEL})
    if IGNORED_LABEL in labels and present == [0]:
        raise ValueError(
            f'masks have the labels 0 ({IGNORED_LABEL} is ignored), e.g. {labels[IGNORED_LABEL]}, so there is one '
            f'class: number the classes 0, 1, 2 ..., with 1 in place of {IGNORED_LABEL}'
        )
    expected = range(len(names) or len(present))
    outside = [label for label in present if label not in expected]
    if outside or len(expected) < 2:
        example = labels[outside[0]] if outside else next(iter(labels.values()))
        many = f'{len(names)} names' if names else 'no names'
        raise ValueError(
            f'masks have the labels {_some(present)} ({IGNORED_LABEL} is ignored), e.g. {example}, with {many} of '
            'classes: expected indices from 0 without a gap, two at least; number the classes 0, 1, 2 ..., or name all '
            'of them with --classes'
        )
    return tuple(names) or tuple(f'class_{label}' for label in present)


def _some(labels: Sequence[int]) -> str:
    return ', '.join(map(str, labels[:8])) + (' ...' if len(labels) > 8 else '')


# --- classification ---


def read_classification(root: Path) -> OwnData:
    """Reads folders of classes.

    Raises:
        FileNotFoundError: if there are none.
        ValueError: if a folder is empty, splits have other classes, or mmpretrain does not read an image.
    """
    folders = split_folders(root)
    names = {
        split: sorted(path.name for path in folder.iterdir() if path.is_dir()) for split, folder in folders.items()
    }
    if not names.get('test', True):
        del names['test']  # images without classes
    classes = names['train']
    if len(classes) < 2:
        raise FileNotFoundError(f'{folders["train"]} has {len(classes)} class folders: expected at least two')
    splits = {}
    for split, in_split in names.items():
        differing = sorted(set(in_split) ^ set(classes))
        if differing:
            raise ValueError(
                f'{folders[split]} and {folders["train"]} differ in the class folders {", ".join(differing)}: both '
                'need all of them'
            )
        counts = {name: _num_images(folders[split] / name) for name in in_split}
        empty = [name for name, count in counts.items() if not count]
        if empty:
            raise ValueError(f'class folders without images in {folders[split]}: {", ".join(empty[:SHOWN_EXAMPLES])}')
        splits[split] = Split(dict(data_prefix=folders[split].name), sum(counts.values()))
    return OwnData(root, tuple(classes), splits)


def _num_images(folder: Path) -> int:
    """Number of images of a class.

    Raises:
        ValueError: if there are some that mmpretrain leaves out.
    """
    names = names_in(folder, IMAGE_SUFFIXES)
    left_out = [name for name in names if not name.lower().endswith(CLASSIFIED_SUFFIXES)]
    if left_out:
        path = folder / left_out[0]
        raise ValueError(
            f'{path}: mmpretrain reads no {path.suffix.lower()} from class folders, and {len(left_out)} of '
            f'{len(names)} images here are of such a kind: convert it to one of {", ".join(CLASSIFIED_SUFFIXES)}'
        )
    return len(names)
