"""A data set of one's own: how its folders lie, and which classes it has.

Three layouts, one for each task::

    detection        train/ val/ [test/], perhaps in images/, and COCO files: annotations/*train*.json, *train*.json
                     beside the folders, or one in each folder (_annotations.coco.json)
    segmentation     images/ and masks/ with train/ and val/ in each, or train/ and val/ with images/ and masks/ in each
    classification   train/ and val/ with one folder for each class

Here places and names are found; whether files match is for :func:`vitplug.runs.checks.check_data`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vitplug.files.folders import IMAGE_SUFFIXES, files_in, names_in

from .checks.accounts import read_coco
from .checks.samples import map_fault, read_map

# Names that folders have in wide-spread data sets and exports; a year may follow the name of a split (train2017).
SPLITS = dict(train='train|training', val='val|valid|validation', test='test|testing')
IMAGES, MASKS = 'images|imgs|img|img_dir', 'masks|labels|annotations|ann_dir'
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
        metric: Settings of its metric.
        has_masks: Whether every object has a mask (detection).
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Mapping]
    images: int
    metric: Mapping
    has_masks: bool = False


def _folder(root: Path, split: str, *orders: Sequence[str]) -> Path | None:
    """The folder of a split, or of its images or masks, by the first order of names that there is.

    Raises:
        FileNotFoundError: If there is none, unless it is a test's; names those that there are.
        ValueError: If there are two.
    """
    for names in orders:
        found = [root]
        for name in names:
            below = sorted(path for folder in found for path in folder.iterdir() if path.is_dir())
            found = [path for path in below if re.fullmatch(rf'({name})\d*', path.name, re.IGNORECASE)]
        if len(found) > 1:
            raise ValueError(f'two folders for {split}: {found[0]} and {found[1]}: keep one')
        if found:
            return found[0]
    if split == 'test':
        return None
    there = ', '.join(sorted(path.name for path in root.iterdir() if path.is_dir())) or 'no folder'
    raise FileNotFoundError(
        f'{root} has no folder for {split}: expected {"/".join(name.partition("|")[0] for name in orders[0])}, found '
        f'{there}'
    )


# --- detection ---


def read_detection(root: Path, names: Sequence[str] = ()) -> OwnData:
    """Finds COCO files and the folders of their images; names are those of the categories.

    Raises:
        FileNotFoundError: If folders, annotations or images are missing.
        ValueError: If a split has two annotation files, a file is no COCO file, or only some objects have masks.
    """
    splits, contents = {}, {}
    for split, word in SPLITS.items():
        folder = _folder(root, split, (word,), (IMAGES, word))
        named = [*files_in(root, '.json'), *files_in(root / 'annotations', '.json')]
        files = [path for path in named if re.fullmatch(rf'(.*[^a-z])?({word})([^a-z].*)?', path.stem, re.IGNORECASE)]
        files += files_in(folder, '.json') if folder else []
        if split == 'test' and not (folder and files):
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
    return OwnData(tuple(classes), splits, len(contents['train']['images']), dict(type='CocoMetric'), not bare)


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
    for split, word in SPLITS.items():
        images, masks = (_folder(root, split, (kind, word), (word, kind)) for kind in (IMAGES, MASKS))
        if images is None or masks is None:
            continue
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
    metric = dict(type='IoUMetric', iou_metrics=['mIoU'])
    return OwnData(tuple(names) or tuple(f'class_{label}' for label in range(number)), splits, count, metric)


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
    splits, classes, count = {}, [], 0
    for split, word in SPLITS.items():
        folder = _folder(root, split, (word,))
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder else []
        if split == 'train':
            classes, count = names, len(names_in(folder, IMAGE_SUFFIXES))
        if len(classes) < 2:
            raise FileNotFoundError(f'{folder} has {len(names)} class folders: expected two or more, with images')
        if names:  # a test may have images without classes
            splits[split] = dict(type='CustomDataset', data_prefix=folder.name)
    metric = dict(type='Accuracy', topk=(1, 5) if len(classes) > 5 else (1,))
    return OwnData(tuple(classes), splits, count, metric)


READERS = dict(detection=read_detection, segmentation=read_segmentation, classification=read_classification)
