"""A data set of one's own: how its folders lie, and which classes it has.

Three layouts, one for each task::

    detection        train/ val/ [test/], perhaps in images/, and COCO files: annotations/*train*.json, *train*.json
                     beside the folders, or one in each folder (_annotations.coco.json)
    segmentation     images/ and masks/ with train/ and val/ in each, or train/ and val/ with images/ and masks/ in each
    classification   train/ and val/ with one folder for each class

Here places and names are found; whether files match is for :func:`vitplug.runs.checks.data.check_data`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from vitplug.files.annotations import check_annotation_file
from vitplug.files.folders import IMAGE_SUFFIXES, files_in, names_in

from .checks.accounts import check_coco
from .dataset_check import inspect_labels

# Names that folders have in wide-spread data sets and exports; a year may follow the name of a split (train2017).
SPLITS = dict(train='train|training', val='val|valid|validation', test='test|testing')
PAIRED = dict(images='images|imgs|img|img_dir', masks='masks|labels|annotations|ann_dir')


@dataclass(frozen=True)
class OwnData:
    """A data set as it lies on the disk.

    Attributes:
        classes: Names of its classes, by label.
        splits: For `train`, `val` and, where there is one with annotations, `test`: where its files lie, relative to
            the root, as its task's class of data sets takes it (`ann_file`, `data_prefix` and so on).
        images: Number of training images.
        has_masks: Whether every object has a mask (detection).
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Mapping]
    images: int
    has_masks: bool = False


def _folders(root: Path, patterns: Mapping[str, str], needed: Collection[str]) -> dict[str, Path]:
    """The folders of some names in a folder.

    Raises:
        FileNotFoundError: If one that is needed is missing; names those that there are.
        ValueError: If there are two for one purpose.
    """
    if not root.is_dir():
        raise FileNotFoundError(f'no such data folder: {root}')
    existing = sorted(path for path in root.iterdir() if path.is_dir())
    found: dict[str, Path] = {}
    for purpose, pattern in patterns.items():
        matching = [folder for folder in existing if re.fullmatch(rf'({pattern})\d*', folder.name, re.IGNORECASE)]
        if len(matching) > 1:
            raise ValueError(f'two folders for {purpose}: {matching[0]} and {matching[1]}: keep one')
        if matching:
            found[purpose] = matching[0]
    missing = [purpose for purpose in needed if purpose not in found]
    if missing:
        raise FileNotFoundError(
            f'{root} has no folder for {" and ".join(missing)}: expected {patterns[missing[0]].replace("|", " or ")}, '
            f'found {", ".join(folder.name for folder in existing) or "no folder"}'
        )
    return found


def _check_unnamed(names: Sequence[str]) -> None:
    if names:
        raise ValueError('--classes: only label maps have no names of their own; leave it out')


def _splits(root: Path) -> dict[str, Path]:
    return _folders(root, SPLITS, ('train', 'val'))


# --- detection ---


def read_detection(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds COCO files and the folders of their images.

    Raises:
        FileNotFoundError: If folders, annotations or images are missing.
        ValueError: If a split has two annotation files, a file is no COCO file, or only some objects have masks.
    """
    _check_unnamed(names)
    inside = root / 'images'
    folders = _splits(inside if inside.is_dir() else root)
    files = {split: file for split, folder in folders.items() if (file := _coco_file(root, split, folder))}
    contents = {split: _read_coco(file) for split, file in files.items()}
    splits = {
        split: dict(
            ann_file=str(files[split].relative_to(root)),
            data_prefix=dict(img=_image_prefix(root, folders[split], files[split], content)),
        )
        for split, content in contents.items()
    }
    unused = _unused_parents(contents.values())
    classes = [category['name'] for category in contents['train']['categories'] if category['name'] not in unused]
    has_masks = _have_masks({files[split]: content for split, content in contents.items()})
    return OwnData(tuple(classes), splits, len(contents['train']['images']), has_masks)


def _coco_file(root: Path, split: str, folder: Path) -> Path | None:
    """The annotation file of a split; None for a test without one."""
    named = [*files_in(root, '.json'), *files_in(root / 'annotations', '.json')]
    word = rf'(.*[^a-z])?({SPLITS[split]})([^a-z].*)?'
    found = [path for path in named if re.fullmatch(word, path.stem, re.IGNORECASE)] + files_in(folder, '.json')
    if len(found) > 1:
        raise ValueError(f'two COCO files for {split}: {found[0]} and {found[1]}: move one elsewhere')
    if not found and split != 'test':
        raise FileNotFoundError(
            f'no annotations for {split}: expected a COCO file such as {root}/annotations/instances_{split}.json or '
            f'{folder}/_annotations.coco.json'
        )
    return found[0] if found else None


def _read_coco(path: Path) -> dict:
    content = check_annotation_file(path)
    check_coco(content, str(path))
    return content


def _image_prefix(root: Path, folder: Path, path: Path, content: Mapping) -> str:
    """The folder, below the root, that the names of a COCO file start from, told from the first image."""
    name = content['images'][0]['file_name']
    for parent in (folder, folder.parent, root):
        if (parent / name).is_file():
            return '' if parent == root else f'{parent.relative_to(root)}/'
    raise FileNotFoundError(f'{path}: its image {name} is neither in {folder} nor in {folder.parent} nor in {root}')


def _unused_parents(contents: Collection[Mapping]) -> set[str]:
    """Categories without annotations that are the supercategory of another one, as some exports have them."""
    used = {annotation['category_id'] for content in contents for annotation in content['annotations']}
    categories = [category for content in contents for category in content['categories']]
    parents = {category.get('supercategory') for category in categories if category['id'] in used}
    return {category['name'] for category in categories if category['id'] not in used} & parents


def _have_masks(contents: Mapping[Path, Mapping]) -> bool:
    """Whether the objects of COCO files have masks.

    Raises:
        ValueError: If only some do.
    """
    objects = [(path, annotation) for path, content in contents.items() for annotation in content['annotations']]
    bare = [(path, annotation['id']) for path, annotation in objects if not annotation.get('segmentation')]
    if 0 < len(bare) < len(objects):
        raise ValueError(
            f'{bare[0][0]}, annotation {bare[0][1]} has no segmentation, and {len(objects) - len(bare)} of '
            f'{len(objects)} objects have one: give it one, or remove all of them to train boxes alone'
        )
    return not bare


# --- segmentation ---


def read_segmentation(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds images and label maps.

    Args:
        root: The folder of the data.
        names: Names of the classes; without them, as many as the maps have, named by their labels.

    Raises:
        FileNotFoundError: If a folder is missing.
        ValueError: If images have several endings, or a map has colours or labels that are no classes.
    """
    splits, labels, count = {}, {}, 0
    for split, (images, masks) in _image_and_mask_folders(root):
        stems, image_ending, mask_ending = _endings(images, masks)
        count = len(stems) if split == 'train' else count
        for name in tqdm(names_in(masks, (mask_ending,)), desc=f'{split} masks', disable=None):
            findings, found = inspect_labels(str(masks / name), None, {})
            if findings:
                raise ValueError(f'{findings[0].where}: {findings[0].kind} ({findings[0].detail})')
            labels |= dict.fromkeys(found - labels.keys(), masks / name)
        prefix = dict(img_path=str(images.relative_to(root)), seg_map_path=str(masks.relative_to(root)))
        splits[split] = dict(data_prefix=prefix, img_suffix=image_ending, seg_map_suffix=mask_ending)
    return OwnData(_class_names(labels, names), splits, count)


def _image_and_mask_folders(root: Path) -> Iterator[tuple[str, tuple[Path, Path]]]:
    if 'images' not in _folders(root, PAIRED, ()):
        for split, folder in _splits(root).items():
            yield split, tuple(_folders(folder, PAIRED, PAIRED).values())
        return
    images, masks = map(_splits, _folders(root, PAIRED, PAIRED).values())
    for split in (split for split in images if split in masks):  # a test may be without them
        yield split, (images[split], masks[split])


def _endings(images: Path, masks: Path) -> tuple[list[str], str, str]:
    """Names of images without their ending, that ending, and the one that makes most of them names of masks.

    Raises:
        ValueError: If images have several endings.
    """
    names, mask_names = names_in(images, IMAGE_SUFFIXES), set(names_in(masks, IMAGE_SUFFIXES))
    endings = sorted({Path(name).suffix for name in names})
    if len(endings) != 1:
        raise ValueError(
            f'{images} has images that end in {", ".join(endings) or "nothing known"}: expected one ending'
        )
    stems = [name.removesuffix(endings[0]) for name in names]
    tails = sorted(name.removeprefix(stem) for stem in stems[:1] for name in mask_names if name.startswith(stem))
    fitting = max(tails, key=lambda tail: sum(f'{stem}{tail}' in mask_names for stem in stems), default='.png')
    return stems, endings[0], fitting


def _class_names(labels: Mapping[int, Path], names: Sequence[str]) -> tuple[str, ...]:
    """A name for each label.

    Args:
        labels: A label map that has it, by label.
        names: The names, if they are known.

    Raises:
        ValueError: If labels are no indices of classes.
    """
    present = sorted(labels)
    expected = range(len(names) or len(present))
    outside = [label for label in present if label not in expected]
    if outside or len(expected) < 2:
        example = f', e.g. {labels[outside[0]]}' if outside else ''
        raise ValueError(
            f'masks have the labels {", ".join(map(str, present[:8]))} (255 is ignored){example}, with '
            f'{len(names) or "no"} names of classes: number the classes 0, 1, 2 ... without a gap, two at least (1 in '
            'place of 255 if masks have 0 and 255 alone), or name all of them with --classes'
        )
    return tuple(names) or tuple(f'class_{label}' for label in present)


# --- classification ---


def read_classification(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds folders of classes.

    Raises:
        FileNotFoundError: If there are none.
    """
    _check_unnamed(names)
    folders = _splits(root)
    classes = {
        split: sorted(path.name for path in folder.iterdir() if path.is_dir()) for split, folder in folders.items()
    }
    if len(classes['train']) < 2:
        raise FileNotFoundError(
            f'{folders["train"]} has {len(classes["train"])} class folders: expected at least two, with images in each'
        )
    # A test may have images without classes.
    splits = {split: dict(data_prefix=folder.name) for split, folder in folders.items() if classes[split]}
    return OwnData(tuple(classes['train']), splits, len(names_in(folders['train'], IMAGE_SUFFIXES)))
