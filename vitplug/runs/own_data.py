"""A data set of one's own: how its folders lie, and which classes it has.

Three layouts, one for each task::

    detection        train/ val/ [test/], perhaps in images/, and COCO files: annotations/*train*.json, *train*.json
                     beside the folders, or one in each folder (_annotations.coco.json)
    segmentation     images/ and masks/ with train/ and val/ in each, or train/ and val/ with images/ and masks/ in each
    classification   train/ and val/ with one folder for each class

Here places and names are found; whether files match is for :func:`vitplug.runs.checks.check_data`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vitplug.files.folders import IMAGE_SUFFIXES, files_in, names_in

from .checks.accounts import read_coco
from .checks.samples import map_fault, read_map

# Names that folders have in wide-spread data sets and exports; a year may follow the name of a split (train2017).
SPLITS = dict(train='train|training', val='val|valid|validation', test='test|testing')
PAIRED = dict(images='images|imgs|img|img_dir', masks='masks|labels|annotations|ann_dir')
TESTED = dict(test_mode=True)
IGNORED = 255


@dataclass(frozen=True)
class OwnData:
    """A data set as it lies on the disk.

    Attributes:
        classes: Names of its classes, by label.
        splits: For `train`, `val` and, where there is one with annotations, `test`: settings of its data set, with
            places relative to the root (`type`, `ann_file`, `data_prefix` and so on).
        images: Number of training images.
        has_masks: Whether every object has a mask (detection).
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Mapping]
    images: int
    has_masks: bool = False


def _folders(root: Path, patterns: Mapping[str, str] = SPLITS, needed: Collection[str] = ('train', 'val')) -> dict:
    """The folders of some names in a folder, by purpose.

    Raises:
        FileNotFoundError: If one that is needed is missing; names those that there are.
        ValueError: If there are two for one purpose.
    """
    existing = sorted(path for path in root.iterdir() if path.is_dir())
    found: dict[str, Path] = {}
    for purpose, pattern in patterns.items():
        for folder in existing:
            if re.fullmatch(rf'({pattern})\d*', folder.name, re.IGNORECASE):
                if purpose in found:
                    raise ValueError(f'two folders for {purpose}: {found[purpose]} and {folder}: keep one')
                found[purpose] = folder
    if missing := [purpose for purpose in needed if purpose not in found]:
        raise FileNotFoundError(
            f'{root} has no folder for {" and ".join(missing)}: expected {patterns[missing[0]].replace("|", " or ")}, '
            f'found {", ".join(folder.name for folder in existing) or "no folder"}'
        )
    return found


# --- detection ---


def read_detection(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds COCO files and the folders of their images; names are those of the categories.

    Raises:
        FileNotFoundError: If folders, annotations or images are missing.
        ValueError: If a split has two annotation files, a file is no COCO file, or only some objects have masks.
    """
    inside, splits, contents = root / 'images', {}, {}
    for split, folder in _folders(inside if inside.is_dir() else root).items():
        word = rf'(.*[^a-z])?({SPLITS[split]})([^a-z].*)?'
        named = [*files_in(root, '.json'), *files_in(root / 'annotations', '.json')]
        files = [path for path in named if re.fullmatch(word, path.stem, re.IGNORECASE)] + files_in(folder, '.json')
        if not files and split == 'test':
            continue
        if len(files) != 1:
            raise ValueError(
                f'{len(files)} COCO files for {split} ({", ".join(map(str, files))}): expected one, such as '
                f'{root}/annotations/instances_{split}.json or {folder}/_annotations.coco.json'
            )
        contents[split] = read_coco(files[0])
        prefix = _image_prefix(root, folder, files[0], contents[split])
        used_as = dict(filter_cfg=dict(filter_empty_gt=True)) if split == 'train' else TESTED
        place = str(files[0].relative_to(root))
        splits[split] = dict(type='CocoDataset', ann_file=place, data_prefix=dict(img=prefix), **used_as)
    objects = [annotation for content in contents.values() for annotation in content['annotations']]
    bare = [annotation['id'] for annotation in objects if not annotation.get('segmentation')]
    if 0 < len(bare) < len(objects):
        raise ValueError(
            f'annotation {bare[0]} has no segmentation, and {len(objects) - len(bare)} of {len(objects)} objects have '
            'one: give it one, or remove all of them to train boxes alone'
        )
    # Some exports have a category that holds the others, and no objects.
    used = {annotation['category_id'] for annotation in objects}
    categories = [category for content in contents.values() for category in content['categories']]
    parents = {category.get('supercategory') for category in categories if category['id'] in used}
    classes = (
        category['name']
        for category in contents['train']['categories']
        if category['id'] in used or category['name'] not in parents
    )
    return OwnData(tuple(classes), splits, len(contents['train']['images']), not bare)


def _image_prefix(root: Path, folder: Path, path: Path, content: Mapping) -> str:
    """The folder, below the root, that the names of a COCO file start from, told from the first image."""
    name = content['images'][0]['file_name']
    for parent in (folder, folder.parent, root):
        if (parent / name).is_file():
            return '' if parent == root else f'{parent.relative_to(root)}/'
    raise FileNotFoundError(f'{path}: its image {name} is neither in {folder} nor in {folder.parent} nor in {root}')


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
    splits, labels, count = {}, set(), 0
    for split, images, masks in _image_and_mask_folders(root):
        stems, ending, mask_ending = _endings(images, masks)
        count = len(stems) if split == 'train' else count
        for name in tqdm(names_in(masks, (mask_ending,)), desc=f'{split} masks', disable=None):
            values = read_map(masks / name)
            if fault := map_fault(values):
                raise ValueError(f'{masks / name}: {fault}')
            labels |= {*np.unique(values).tolist()} - {IGNORED}
        prefix = dict(img_path=str(images.relative_to(root)), seg_map_path=str(masks.relative_to(root)))
        files = dict(data_prefix=prefix, img_suffix=ending, seg_map_suffix=mask_ending)
        splits[split] = dict(type='BaseSegDataset', **files, **({} if split == 'train' else TESTED))
    number = len(names) or len(labels)
    if number < 2 or max(labels, default=0) >= number:
        raise ValueError(
            f'masks have the labels {", ".join(map(str, sorted(labels)[:8]))} ({IGNORED} is ignored), with '
            f'{len(names) or "no"} names of classes: number the classes 0, 1, 2 ... without a gap, two at least (1 in '
            f'place of {IGNORED} if masks have 0 and {IGNORED} alone), or name all of them with --classes'
        )
    return OwnData(tuple(names) or tuple(f'class_{label}' for label in range(number)), splits, count)


def _image_and_mask_folders(root: Path) -> Iterator[tuple[str, Path, Path]]:
    if 'images' not in _folders(root, PAIRED, ()):
        for split, folder in _folders(root).items():
            yield split, *_folders(folder, PAIRED, PAIRED).values()
        return
    images, masks = map(_folders, _folders(root, PAIRED, PAIRED).values())
    for split in (split for split in images if split in masks):  # a test may be without them
        yield split, images[split], masks[split]


def _endings(images: Path, masks: Path) -> tuple[list[str], str, str]:
    """Names of images without their ending, that ending, and the one that makes most of them names of masks."""
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


# --- classification ---


def read_classification(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds folders of classes, which name them.

    Raises:
        FileNotFoundError: If there are none.
    """
    folders = _folders(root)
    classes = {split: sorted(path.name for path in one.iterdir() if path.is_dir()) for split, one in folders.items()}
    if len(classes['train']) < 2:
        raise FileNotFoundError(
            f'{folders["train"]} has {len(classes["train"])} class folders: expected at least two, with images in each'
        )
    # A test may have images without classes.
    kind = 'CustomDataset'
    splits = {split: dict(type=kind, data_prefix=folder.name) for split, folder in folders.items() if classes[split]}
    return OwnData(tuple(classes['train']), splits, len(names_in(folders['train'], IMAGE_SUFFIXES)))


READERS = dict(detection=read_detection, segmentation=read_segmentation, classification=read_classification)
