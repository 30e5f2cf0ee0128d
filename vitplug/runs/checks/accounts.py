"""What data sets take of their files, and what they leave out and why.

Counts follow the code that loads: mmdet's `CocoDataset.parse_data_info` and `filter_data`, mmseg's
`BaseSegDataset.load_data_list`, mmpretrain's `CustomDataset`.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmengine.dataset import BaseDataset

from vitplug.files.folders import IMAGE_SUFFIXES, names_in

OBJECTS, IMAGES = 'objects', 'images'
LOSSY = ('.jpg', '.jpeg', '.webp')
# What each entry of a COCO file needs. A file of a test may have no annotations.
NEEDED = dict(
    images=('id', 'file_name', 'width', 'height'),
    categories=('id', 'name'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
)


class Account:
    """What a data set keeps of its files, and what it leaves out.

    Args:
        counted: What is counted, such as :data:`IMAGES`; of each, something has to be left.
    """

    def __init__(self, *counted: str):
        self.kept = Counter(dict.fromkeys(counted, 0))
        #: Number and first example, by what and reason.
        self.lost: dict[tuple[str, str], tuple[int, str]] = {}

    def count(self, what: str, reason: str | None, example: str) -> None:
        """Counts one as kept, or as left out for a reason."""
        if reason is None:
            self.kept[what] += 1
        else:
            number, first = self.lost.get((what, reason), (0, example))
            self.lost[what, reason] = number + 1, first

    def __str__(self) -> str:
        kept = ', '.join(f'{number:,} {what}' for what, number in self.kept.items())
        lost = '; '.join(
            f'{number:,} {what} {reason}, e.g. {first}'
            for (what, reason), (number, first) in sorted(self.lost.items(), key=lambda one: -one[1][0])
        )
        return f'{kept} kept' + (f'; left out: {lost}' if lost else '')


# --- COCO files ---


def read_coco(path: Path) -> dict:
    """The content of a COCO file.

    Raises:
        ValueError: If its form is wrong; says what to do.
    """
    try:
        content = json.loads(path.read_bytes().decode())
    except ValueError as error:
        raise ValueError(f'{path} is no JSON in UTF-8 ({error})') from error
    if not isinstance(content, dict):
        raise ValueError(f'{path} is no COCO file: expected lists of images, annotations and categories')
    for key, fields in NEEDED.items():
        entries = content.get(key, [])
        if not entries and (key != 'annotations' or key in content):
            raise ValueError(f'{path} has no {key}')
        if broken := [one for one in entries if not isinstance(one, dict) or not one.keys() >= {*fields}]:
            raise ValueError(f'{path}: an entry of {key} lacks one of {", ".join(fields)}: {str(broken[0])[:80]}')
        for field in fields:
            if field.endswith('id'):
                _check_ids([entry[field] for entry in entries], f'{path}: {field} of {key}', field == 'id')
    for annotation in content.get('annotations', ()):
        box = annotation['bbox']
        if len(box) != 4 or not all(map(math.isfinite, box)):
            raise ValueError(f'{path}, annotation {annotation["id"]}: bbox {box}: expected four finite numbers')
    name, times = Counter(category['name'] for category in content['categories']).most_common(1)[0]
    if times > 1:
        raise ValueError(
            f'{path}: several categories are named {name!r}, and mmdet finds labels by names: give each a name of its '
            'own, in this and in the files of the other splits'
        )
    return content


def _check_ids(ids: Sequence, place: str, unique: bool) -> None:
    if texts := [one for one in ids if not isinstance(one, int)]:
        raise ValueError(
            f'{place}: {len(texts)} of {len(ids)} are no whole numbers, e.g. {texts[0]!r}, and match no others: write '
            'whole numbers everywhere'
        )
    if unique and len({*ids}) < len(ids):
        raise ValueError(f'{place}: {Counter(ids).most_common(1)[0][0]} occurs more than once: give each its own')


def account_coco(content: Mapping, dataset: BaseDataset) -> Account:
    """Counts what mmdet's class keeps of a COCO file."""
    account = Account(*((OBJECTS, IMAGES) if 'annotations' in content else (IMAGES,)))
    images, classes = {image['id']: image for image in content['images']}, dataset.metainfo['classes']
    known = {one['id'] for one in content['categories'] if one['name'] in classes}
    with_objects = set()
    for category in content['categories']:
        if category['id'] not in known:
            account.count('categories', 'that are no class', category['name'])
    for annotation in content.get('annotations', ()):
        image = images.get(annotation['image_id'])
        if image is not None and annotation['category_id'] in known:
            with_objects.add(image['id'])
        account.count(OBJECTS, _lost_object(annotation, image, known), f'annotation {annotation["id"]}')
    filters = {} if dataset.test_mode else dataset.filter_cfg or {}
    for image in images.values():
        account.count(IMAGES, _lost_image(image, image['id'] in with_objects, filters), image['file_name'])
    return account


def _lost_object(annotation: Mapping, image: Mapping | None, known: set) -> str | None:
    """Why an object is not learnt; None if it is."""
    if image is None:
        return 'of an image that is not in the file'
    if annotation['category_id'] not in known:
        return 'of a category that is no class'
    if annotation.get('ignore'):
        return 'marked ignore'
    x, y, width, height = box = annotation['bbox']
    if min(box) >= 0 and max(x + width, y + height) <= 1:
        return 'with a box in 0..1, where pixels are expected: multiply by width and height of the image'
    if width < 1 or height < 1:
        return 'narrower than a pixel'
    if min(x + width, image['width']) <= max(x, 0) or min(y + height, image['height']) <= max(y, 0):
        return 'outside of the image'
    if annotation['area'] <= 0:
        return 'with an area of zero or less'
    return 'marked iscrowd' if annotation.get('iscrowd') else None


def _lost_image(image: Mapping, has_objects: bool, filters: Mapping) -> str | None:
    if filters.get('filter_empty_gt') and not has_objects:
        return 'without objects (filter_cfg.filter_empty_gt)'
    smallest = filters.get('min_size', 0)
    small = min(image['width'], image['height']) < smallest
    return f'with a side below {smallest} pixels (filter_cfg.min_size)' if small else None


# --- folders ---


def pair_maps(dataset: BaseDataset) -> tuple[Account, list[tuple[Path, Path]]]:
    """Pairs the images in a folder with the label maps in another; counts what lies beside them.

    Raises:
        ValueError: If label maps are of a lossy format, or an image has none.
    """
    images, maps = Path(dataset.data_prefix['img_path']), Path(dataset.data_prefix['seg_map_path'])
    ending, map_ending, account = dataset.img_suffix, dataset.seg_map_suffix, Account(IMAGES)
    if map_ending.lower().endswith(LOSSY):
        raise ValueError(
            f'label maps *{map_ending} in {maps}: JPEG changes the labels of pixels: save them as PNG from the source '
            '(a JPEG that is saved as PNG keeps the damage)'
        )
    there = {name for name in names_in(maps) if name.endswith(map_ending)}
    partners = {}
    for name in names_in(images):
        if name.endswith(ending):
            partners[name] = name.removesuffix(ending) + map_ending
            account.count(IMAGES, None, name)
        elif name.lower().endswith(IMAGE_SUFFIXES):
            account.count(IMAGES, f'whose names do not end in {ending}, as img_suffix says', name)
    if lonely := [name for name, partner in partners.items() if partner not in there]:
        raise ValueError(
            f'{lonely[0]} and so {len(lonely)} of {len(partners)} images have no label map: images *{ending} in '
            f'{images.absolute()}, label maps *{map_ending} in {maps.absolute()}: add them, or set img_suffix and '
            'seg_map_suffix to the endings of the files'
        )
    for name in sorted(there - {*partners.values()}):
        account.count('label maps', 'without an image', name)
    return account, [(images / name, maps / partner) for name, partner in partners.items()]


def account_folders(folder: Path, classes: Sequence[str], endings: Sequence[str]) -> Account:
    """Counts the images that mmpretrain finds in class folders."""
    account, empty = Account(IMAGES), {*classes}
    for name in names_in(folder):
        if not name.lower().endswith(tuple(endings)):
            account.count('files', f'of another ending than {", ".join(sorted(endings))}', name)
        else:
            account.count(IMAGES, None if '/' in name else 'outside of the class folders', name)
            empty -= {name.partition('/')[0]}
    for name in sorted(empty):
        account.count('classes', 'without an image', name)
    return account
