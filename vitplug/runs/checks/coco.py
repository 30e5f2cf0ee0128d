"""COCO files: their form, what mmdet keeps of them, and what pycocotools scores with them."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset

from .accounts import IMAGES, OBJECTS, Account
from .classes import match_categories

# What each entry needs. A file of a test may have no annotations.
NEEDED = dict(
    images=('id', 'file_name', 'width', 'height'),
    categories=('id', 'name'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
)
CROWD = 'marked iscrowd'


def read_coco(path: Path) -> dict:
    """The content of a COCO file; ValueError if its form is wrong."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'{path} is no JSON in UTF-8 ({error})') from error
    for key, fields in NEEDED.items():
        entries = content.get(key, []) if isinstance(content, dict) else None
        if not isinstance(entries, list) or (not entries and key != 'annotations'):
            raise ValueError(
                f'{path} has no {key}: expected a COCO file, with lists of images, annotations, categories'
            )
        for number, entry in enumerate(entries):
            _check_entry(entry, fields, f'{path}: {key}[{number}]')
        for field in (field for field in fields if field.endswith('id')):
            ids = [entry[field] for entry in entries]
            if texts := [one for one in ids if not isinstance(one, int)]:
                raise ValueError(
                    f'{path}: {field} of {key}: {len(texts)} of {len(ids)} are no whole numbers, e.g. {texts[0]!r}, '
                    'and match no others: write whole numbers everywhere'
                )
        for field in ('id', 'name') if key == 'categories' else ('id',):
            value, times = Counter(entry[field] for entry in entries).most_common(1)[0] if entries else ('', 0)
            if times > 1:
                raise ValueError(
                    f'{path}: the {field} {value!r} of {key} occurs {times} times: give each its own, names of '
                    'categories in the files of the other splits, too'
                )
    return content


def _check_entry(entry: Any, fields: Sequence[str], place: str) -> None:
    """ValueError for an entry that lacks what mmdet reads, or whose sizes are no numbers."""
    if missing := [field for field in fields if not isinstance(entry, dict) or field not in entry]:
        raise ValueError(f'{place} lacks {", ".join(missing)}: {str(entry)[:80]}')
    box = entry['bbox'] if 'bbox' in fields else [0] * 4
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
        raise ValueError(f'{place}, id {entry["id"]}: bbox {box}: expected four finite numbers')
    for field in ('width', 'height', 'area'):
        if field in fields and not _is_finite(entry[field]):
            raise ValueError(f'{place}, id {entry["id"]}: {field} {entry[field]!r}: expected a finite number')


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def check_masks(annotations: Sequence[Mapping], file: str | Path) -> None:
    """ValueError for objects without a mask where masks are loaded, of which mmdet says KeyError 'mask'."""
    if bare := [one['id'] for one in annotations if not one.get('segmentation')]:
        raise ValueError(
            f'{file}: annotation {bare[0]} has no segmentation, and {len(annotations) - len(bare)} of '
            f'{len(annotations)} objects have one: give it one, or remove all of them to train boxes alone (in a '
            'config: with_mask=False and no mask head)'
        )


def account_coco(content: Mapping, dataset: BaseDataset) -> Account:
    """Counts what mmdet keeps of a COCO file, as `CocoDataset.parse_data_info` and `filter_data` do.

    Raises:
        ValueError: If the pipeline loads masks, and an object has none.
    """
    account = Account(*((OBJECTS, IMAGES) if 'annotations' in content else (IMAGES,)))
    images, classes = {image['id']: image for image in content['images']}, dataset.metainfo['classes']
    known, with_objects = {one['id'] for one in content['categories'] if one['name'] in classes}, set()
    loaded = []
    for category in content['categories']:
        if category['id'] not in known:
            account.count('categories', 'that are no class', category['name'])
    for annotation in content.get('annotations', ()):
        image = images.get(annotation['image_id'])
        if image is not None and annotation['category_id'] in known:
            with_objects.add(image['id'])
        reason = _lost_object(annotation, image, known)
        account.count(OBJECTS, reason, f'annotation {annotation["id"]}')
        if reason in (None, CROWD):  # a crowd is loaded, and ignored
            loaded.append(annotation)
    if any(getattr(step, 'with_mask', False) for step in dataset.pipeline.transforms):
        check_masks(loaded, dataset.ann_file)
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


def _lost_image(image: Mapping, has_objects: bool, filters: Mapping) -> str | None:
    if filters.get('filter_empty_gt') and not has_objects:
        return 'without objects (filter_cfg.filter_empty_gt)'
    smallest = filters.get('min_size', 0)
    small = min(image['width'], image['height']) < smallest
    return f'with a side below {smallest} pixels (filter_cfg.min_size)' if small else None


def check_scored(file: str, setting: str, sources: Sequence[Any]) -> None:
    """Compares the file that pycocotools scores with those of the loader (:class:`.Source`); ValueError."""
    content = next((source.coco for source in sources if source.dataset.ann_file == file), None) or read_coco(
        Path(file)
    )
    annotations = content.get('annotations', ())
    if wrong := [one['id'] for one in annotations if one['id'] < 1]:
        raise ValueError(
            f'{file}: annotation id {wrong[0]}: pycocotools matches whole numbers from 1 on only (0 counts as no '
            f'match, {len(wrong)} of {len(annotations)} are wrong): number the annotations from 1'
        )
    theirs = {image['id']: image['file_name'] for image in content['images']}
    for source in sources:
        if not source.coco:
            continue
        ours = {image['id']: image['file_name'] for image in source.coco['images']}
        if differing := [number for number, name in ours.items() if theirs.get(number) != name]:
            number = differing[0]
            raise ValueError(
                f'{setting} = {file!r}: image {number} is {theirs.get(number, "missing")} there and {ours[number]} in '
                f'the data of the loader ({len(differing)} of {len(ours)} differ): name the file of the loader'
            )
        match_categories(source.classes, content, file, source.path)
