"""Annotation files looked through line by line, before a library leaves out of them what it does not understand."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitplug.files.annotations import read_json
from vitplug.files.limits import MAX_PIXELS, coco_complaints

ERROR, NOTE = 'error', 'note'
SHOWN_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        severity: 'error' where training would refuse or replace the sample, 'note' where it is handled.
        where: File, and line or id in it.
        kind: Its kind, the same text for all similar findings.
        detail: More about this one.
    """

    severity: str
    where: str
    kind: str
    detail: str = ''


def inspect_coco(path: Path, max_pixels: int = MAX_PIXELS) -> Iterator[Finding]:
    """Looks through a COCO file, before mmdet leaves out of it what it does not understand.

    Args:
        path: The JSON file.
        max_pixels: Largest image.

    Yields:
        Findings, each with the id of the annotation or image.
    """
    content = read_json(path)
    images, annotations = content.get('images', []), content.get('annotations', [])
    categories = content.get('categories', [])
    for key, entries in (('images', images), ('annotations', annotations), ('categories', categories)):
        repeated = [str(id) for id, times in Counter(entry.get('id') for entry in entries).items() if times > 1]
        if repeated:
            yield Finding(ERROR, f'{path}, {key}', 'ids that occur more than once', ', '.join(repeated[:8]))
    sizes = {image.get('id'): (image.get('width'), image.get('height')) for image in images}
    known = {category.get('id') for category in categories}
    for annotation in annotations:
        where = f'{path}, annotation {annotation.get("id")}'
        for severity, kind, detail in _coco_complaints(annotation, sizes, known):
            yield Finding(severity, where, kind, detail)
    for what, reason in coco_complaints(content, max_pixels):
        yield Finding(ERROR, f'{path}, {what}', 'box, polygon, RLE or image size outside of the limits', reason)
    lonely = sizes.keys() - {annotation.get('image_id') for annotation in annotations}
    if lonely:
        kind = 'images without annotations: left out of training with filter_cfg.filter_empty_gt'
        yield Finding(NOTE, f'{path}, images', kind, f'{len(lonely)}, e.g. {sorted(map(str, lonely))[:SHOWN_EXAMPLES]}')


def _coco_complaints(annotation: dict, sizes: dict, categories: set) -> Iterator[tuple[str, str, str]]:
    if annotation.get('image_id') not in sizes:
        yield ERROR, 'annotation of an image that is not in the file', f'image_id {annotation.get("image_id")}'
    if annotation.get('category_id') not in categories:
        yield ERROR, 'annotation of an unknown category', f'category_id {annotation.get("category_id")}'
    if not _is_finite(annotation.get('area')):
        yield ERROR, 'annotation without an area, which mmdet asks for', f'area {annotation.get("area")}'
        return
    box = annotation.get('bbox')
    if not (isinstance(box, list) and len(box) == 4 and all(_is_finite(number) for number in box)):
        yield ERROR, 'box that is not four finite numbers', f'{box}'
        return
    polygons = annotation.get('segmentation')
    for polygon in polygons if isinstance(polygons, list) else ():
        if isinstance(polygon, list) and not all(isinstance(number, int | float) for number in polygon):
            yield ERROR, 'polygon with something else than numbers', f'{polygon[:6]}'
            return
    for kind, applies in LEFT_OUT.items():
        if applies(box, annotation, sizes.get(annotation.get('image_id'))):
            yield NOTE, f'{kind}: left out when it is loaded', f'{box}'
            return
    if _reaches_out(box, sizes[annotation['image_id']] if annotation.get('image_id') in sizes else None):
        yield NOTE, 'box that reaches out of its image: is it left, top, width, height?', f'{box}'


def _is_outside(box: list, annotation: dict, size: tuple | None) -> bool:
    x, y, width, height = box
    return bool(size and all(size)) and (x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0)


def _reaches_out(box: list, size: tuple | None) -> bool:
    x, y, width, height = box
    # Rounded corners may lie a pixel outside.
    return bool(size and all(size)) and (min(x, y) < -1 or x + width > size[0] + 1 or y + height > size[1] + 1)


def _has_half_polygons(box: list, annotation: dict, size: tuple | None) -> bool:
    polygons = annotation.get('segmentation')
    polygons = polygons if isinstance(polygons, list) else []
    return any(isinstance(polygon, list) and (len(polygon) < 6 or len(polygon) % 2) for polygon in polygons)


# Annotations that mmdet leaves out, by their fault.
LEFT_OUT: dict[str, Callable[[list, dict, tuple | None], bool]] = {
    'box narrower than a pixel': lambda box, annotation, size: min(box[2:]) < 1,
    'box outside of its image': _is_outside,
    'annotation with an area of zero or less': lambda box, annotation, size: annotation['area'] <= 0,
    'polygon of less than three points, or with half a point': _has_half_polygons,
}


def _is_finite(number) -> bool:
    return isinstance(number, (int, float)) and math.isfinite(number)


def inspect_label_list(path: Path, num_classes: int | None) -> Iterator[Finding]:
    """Looks through a text file with a line `path label` for each image.

    Yields:
        Findings, each with the number of its line.
    """
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        _, _, label = line.strip().rpartition(' ')
        if not label.isdecimal():
            yield Finding(ERROR, f'{path}, line {number}', 'line that is not a path and a label', repr(line[:80]))
        elif num_classes is not None and int(label) >= num_classes:
            yield Finding(ERROR, f'{path}, line {number}', f'label outside of the {num_classes} classes', label)
