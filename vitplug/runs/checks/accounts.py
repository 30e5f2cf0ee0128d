"""What data sets take of their files, and what they leave out and why; what pycocotools scores.

COCO files are read here, as mmdet needs long for large ones; folders are compared with what the data sets list.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset

from vitplug.files.folders import names_in

from .classes import check_categories

OBJECTS, IMAGES = 'objects', 'images'
CROWD = 'marked iscrowd'
LOSSY = ('.jpg', '.jpeg', '.webp')


class Account:
    """What a data set keeps of its files, and what it leaves out.

    Args:
        counted: What is counted, such as :data:`IMAGES`; of each, something has to be left.
    """

    def __init__(self, *counted: str):
        self.kept = Counter(dict.fromkeys(counted, 0))
        #: Examples, by what and reason.
        self.lost: dict[tuple[str, str], list[str]] = {}

    def count(self, what: str, reason: str | None, example: str) -> None:
        """Counts one as kept, or as left out for a reason."""
        if reason is None:
            self.kept[what] += 1
        else:
            self.lost.setdefault((what, reason), []).append(example)

    def __str__(self) -> str:
        kept = ', '.join(f'{number:,} {what}' for what, number in self.kept.items())
        lost = '; '.join(
            f'{len(names):,} {what} {reason}, e.g. {names[0]}'
            for (what, reason), names in sorted(self.lost.items(), key=lambda one: -len(one[1]))
        )
        return f'{kept} kept' + (f'; left out: {lost}' if lost else '')


def account_folders(dataset: BaseDataset, infos: Sequence[Mapping], images: str, maps: str | None) -> Account:
    """Compares what a data set lists with the files in its folders; ValueError for lossy or missing label maps."""
    # Both sides join names to folders in the same way; texts, for there may be a million.
    account, listed = Account(IMAGES), {info['img_path'] for info in infos}
    partners = {info['seg_map_path'] for info in infos} if maps else set()
    there = {os.path.join(maps, name) for name in names_in(maps)} if maps else set()
    if lossy := [path for path in partners if path.lower().endswith(LOSSY)]:
        raise ValueError(
            f'{lossy[0]}: JPEG changes the labels of pixels: save label maps as PNG from the source (a JPEG that is '
            'saved as PNG keeps the damage)'
        )
    if lonely := sorted(partners - there):
        raise ValueError(
            f'{len(lonely)} of {len(listed)} images have no label map, such as {os.path.abspath(lonely[0])}: add them, '
            f'or set img_suffix and seg_map_suffix ({dataset.img_suffix}, {dataset.seg_map_suffix}) to their endings'
        )
    for name in names_in(images):
        if (path := os.path.join(images, name)) in listed:
            account.count(IMAGES, None, name)
        elif path not in partners:
            account.count('files', 'of another place or ending than the data set looks for', name)
    for path in sorted(there - partners - listed):
        account.count('label maps', 'without an image', os.path.basename(path))
    return account


# What each entry needs. A file of a test may have no annotations.
NEEDED = dict(
    images=('id', 'file_name', 'width', 'height'),
    categories=('id', 'name'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
)


def _expected(field: str, value: Any) -> str:
    """What the field of an entry has to be, where its value is something else; '' if it fits."""
    if field.endswith('id'):
        return '' if isinstance(value, int) else 'a whole number, which alone matches others'
    if field.endswith('name'):
        return '' if isinstance(value, str) else 'a text'
    numbers = value if field == 'bbox' and isinstance(value, list) else [value]
    number = 4 if field == 'bbox' else 1
    fits = len(numbers) == number and all(isinstance(one, int | float) and math.isfinite(one) for one in numbers)
    return '' if fits else 'four finite numbers' if number == 4 else 'a finite number'


def read_coco(path: Path) -> dict:
    """The content of a COCO file; ValueError if its form is wrong."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'{path} is no JSON in UTF-8 ({error})') from error
    for key, fields in NEEDED.items():
        entries = content.get(key, []) if isinstance(content, dict) else None
        if not isinstance(entries, list) or (not entries and key != 'annotations'):
            raise ValueError(f'{path} has no {key}: expected a COCO file with images, annotations and categories')
        for number, entry in enumerate(entries):
            for field in fields:
                if not isinstance(entry, dict) or field not in entry:
                    raise ValueError(f'{path}: {key}[{number}] lacks {field}: {str(entry)[:80]}')
                if expected := _expected(field, entry[field]):
                    raise ValueError(f'{path}: {key}[{number}].{field} = {entry[field]!r}: expected {expected}')
        for field in (field for field in fields if field in ('id', 'name')):
            value, times = Counter(entry[field] for entry in entries).most_common(1)[0] if entries else ('', 0)
            if times > 1:
                raise ValueError(
                    f'{path}: the {field} {value!r} of {key} occurs {times} times: give each its own, names of '
                    'categories in the files of the other splits, too'
                )
    return content


def account_coco(content: Mapping, dataset: BaseDataset) -> Account:
    """Counts what mmdet keeps of a COCO file, as `CocoDataset.parse_data_info` and `filter_data` do.

    Raises:
        ValueError: If the pipeline loads masks, and an object has none.
    """
    account = Account(*((OBJECTS, IMAGES) if 'annotations' in content else (IMAGES,)))
    images, classes = {image['id']: image for image in content['images']}, dataset.metainfo['classes']
    known, with_objects = {one['id'] for one in content['categories'] if one['name'] in classes}, set()
    masks = next((step for step in dataset.pipeline.transforms if getattr(step, 'with_mask', False)), None)
    for category in content['categories']:
        if category['id'] not in known:
            account.count('categories', 'that are no class', category['name'])
    for annotation in content.get('annotations', ()):
        image, place = images.get(annotation['image_id']), f'annotation {annotation["id"]}'
        if annotation['category_id'] in known:
            with_objects.add(annotation['image_id'])
        mask, reason = annotation.get('segmentation'), _lost_object(annotation, image, known)
        # A crowd is loaded, and ignored. mmdet says only KeyError 'mask'.
        is_mask = isinstance(mask, dict) or (mask and isinstance(mask[0], list))
        if masks and reason in (None, CROWD) and not is_mask:
            raise ValueError(
                f'{dataset.ann_file}: {place} has no segmentation: give each object one (a list of polygons), or '
                'remove all of them to train boxes alone (in a config: with_mask=False and no mask head)'
            )
        reason = reason or (_lost_mask(mask, masks.poly2mask) if masks else None)
        account.count(OBJECTS, reason, place)
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
    return CROWD if annotation.get('iscrowd') else None


def _lost_mask(mask: Any, poly2mask: bool) -> str | None:
    if isinstance(mask, list):
        return (
            None if any(len(part) >= 6 and len(part) % 2 == 0 for part in mask) else 'without a polygon of three points'
        )
    return None if poly2mask else 'with a mask as run lengths, which LoadAnnotations ignores with poly2mask=False'


def _lost_image(image: Mapping, has_objects: bool, filters: Mapping) -> str | None:
    if filters.get('filter_empty_gt') and not has_objects:
        return 'without objects (filter_cfg.filter_empty_gt)'
    smallest = filters.get('min_size', 0)
    small = min(image['width'], image['height']) < smallest
    return f'with a side below {smallest} pixels (filter_cfg.min_size)' if small else None


def check_scored(file: str, setting: str, sources: Sequence[Any]) -> None:
    """Compares the file that pycocotools scores with those of the loader (:class:`.Source`); ValueError."""
    loaded = {source.dataset.ann_file: source.coco for source in sources if source.coco}
    content = loaded.get(file) or read_coco(Path(file))
    if wrong := [one['id'] for one in content.get('annotations', ()) if one['id'] < 1]:
        raise ValueError(
            f'{file}: annotation id {wrong[0]}: pycocotools matches whole numbers from 1 on only (0 counts as no '
            'match): number the annotations from 1'
        )
    if loaded and _names(content) != _names(*loaded.values()):
        raise ValueError(
            f'{setting} = {file!r} has other images, or other ids of images, than {", ".join(loaded)}, which the '
            'loader reads: name the file of the loader'
        )
    for source in sources:
        if source.coco:
            check_categories(source.path, source.classes, content, file)


def _names(*contents: Mapping) -> dict[int, str]:
    return {image['id']: image['file_name'] for content in contents for image in content['images']}
