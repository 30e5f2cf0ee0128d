"""Limits of the files and annotations of a sample, checked before a C library reads them.

pycocotools, OpenCV and Pillow believe what a file says: a coordinate of 1e9 crashes the process, a PNG of 1 MB unpacks
to 3 GB, and reading a pipe never ends.
"""

import errno
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from PIL import Image

from .orientation import Header, header_of

# Largest image, in pixels: Pillow's own bound, 256 MiB as RGB. `default_hooks.bad_samples.max_pixels` changes it.
MAX_PIXELS = 89_478_485

# Errors of a process that has as many files open as it may.
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
RAISE_THE_LIMIT = 'raise the limit of open files (ulimit -n 65536)'

SPECIAL = {
    'pipe': stat.S_ISFIFO,
    'socket': stat.S_ISSOCK,
    'character device': stat.S_ISCHR,
    'block device': stat.S_ISBLK,
}


def check_source(info: Mapping, max_pixels: int = MAX_PIXELS) -> dict[str, Header | None]:
    """Checks the files and annotations of a sample.

    Args:
        info: The data set's information on the sample: paths under keys that end in `path`, `width` and `height` in
            pixels, and `instances`, each with `bbox` (x1, y1, x2, y2) and `mask` (polygons or COCO's run lengths).
        max_pixels: Largest image.

    Returns:
        The headers of its files by path; None for those that Pillow cannot read.

    Raises:
        ValueError: names the file or instance, what it is and what is allowed.
    """
    headers = {}
    for path in _paths(info):
        check_regular(path)
        headers[path] = check_image_size(path, max_pixels)
    size = info.get('width'), info.get('height')
    if None in size:
        header = headers.get(info.get('img_path'))
        size = header and header.loaded_size(True)
    instances = info.get('instances')
    if not instances or size is None:
        return headers
    check_annotated_size(*size, max_pixels)
    for number, instance in enumerate(instances):
        if not isinstance(instance, Mapping):
            continue
        try:
            check_shapes(instance.get('bbox'), instance.get('mask'), *size)
        except ValueError as error:
            raise ValueError(f'instance {number}: {error}') from error
    return headers


def _paths(info: Mapping) -> Iterator[str]:
    for key, value in info.items():
        if key.endswith('path'):
            yield from (path for path in (value if isinstance(value, list) else [value]) if isinstance(path, str))


# --- files ---


def special_kind(path: str | Path) -> str | None:
    """Kind of a file that has no end of its own, such as ``'pipe'``; None for others and where there is none."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    return next((kind for kind, is_kind in SPECIAL.items() if is_kind(mode)), None)


def check_regular(path: str | Path) -> None:
    """Checks that a path names no pipe, socket or device.

    Raises:
        ValueError: names the path and its kind.
    """
    kind = special_kind(path)
    if kind:
        raise ValueError(f'{path} is a {kind}: expected a regular file')


def check_image_size(path: str, max_pixels: int) -> Header | None:
    """Checks the size that the header of an image file gives.

    Returns:
        The header; None if Pillow cannot read the file, which its loader may.

    Raises:
        ValueError: names the path, its pixels and the limit.
    """
    # Pillow warns above its own limit and refuses twice as much; it checks images inside of images, too.
    Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        with Image.open(path) as image:
            header = header_of(image)
        pixels = header.size[0] * header.size[1]
    except Image.DecompressionBombError as error:
        pixels = int(re.search(r'\d+', str(error))[0])
    except Exception:  # a broken header can end in nearly any
        return None
    if pixels > max_pixels:
        raise ValueError(f'{path} has {pixels:,} pixels: {_allowed(max_pixels)}')
    return header


def _allowed(max_pixels: int) -> str:
    return f'allowed are {max_pixels:,} (default_hooks.bad_samples.max_pixels)'


# --- annotations ---


def check_annotated_size(width, height, max_pixels: int) -> None:
    """Checks the size that annotations give an image.

    Raises:
        ValueError: if it is no pair of positive numbers, or too large.
    """
    if not all(isinstance(side, Real) and 0 < side < math.inf for side in (width, height)):
        raise ValueError(f'size {width!r} x {height!r}: expected positive numbers')
    if width * height > max_pixels:
        raise ValueError(f'size {width} x {height} pixels: {_allowed(max_pixels)}')


def check_shapes(corners, mask, width: int, height: int) -> None:
    """Checks the box and the mask of one instance.

    Args:
        corners: Corners of the box, x1, y1, x2, y2; or None.
        mask: Polygons, each a list x, y, x, y ...; run lengths, a dict of `counts` and `size`; or None.
        width, height: Size of the image, in pixels.

    Raises:
        ValueError: names the value and what is allowed.
    """
    if corners is not None:
        _points(corners, width, height)
    if isinstance(mask, list):
        for polygon in mask:
            _check_outline(_points(polygon, width, height), width, height)
    elif isinstance(mask, Mapping) and mask.get('counts') is not None and mask.get('size') is not None:
        _check_run_lengths(mask, width, height)


def _points(values, width: int, height: int) -> np.ndarray:
    """Numbers x, y, x, y ... as an array of shape (points, 2), none further outside than the image is large."""
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, OverflowError, ValueError) as error:
        raise ValueError(f'{str(values)[:80]}: expected numbers') from error
    if numbers.ndim != 1:
        raise ValueError(f'{str(values)[:80]}: expected numbers x, y, x, y ... in one list')
    side = max(width, height)
    wrong = numbers[~((numbers >= -side) & (numbers <= 2 * side))]
    if len(wrong):
        raise ValueError(
            f'coordinate {wrong[0]:g} in an image of {width} x {height}: allowed are {-side} to {2 * side}'
        )
    return numbers[: len(numbers) // 2 * 2].reshape(-1, 2)


def _check_outline(points: np.ndarray, width: int, height: int) -> None:
    """pycocotools keeps about 120 bytes for each pixel that a polygon's outline passes."""
    if not len(points):
        return
    length = np.abs(np.diff(points, axis=0, append=points[:1])).max(1).sum()
    limit = width * height + 4 * (width + height)
    if length > limit:
        raise ValueError(
            f'polygon with an outline of {length:.0f} pixels in an image of {width} x {height}: allowed are {limit}'
        )


def _check_run_lengths(mask: Mapping, width: int, height: int) -> None:
    size, counts = mask['size'], mask['counts']
    if not np.array_equal(size, [height, width]):
        raise ValueError(f'RLE of size {size}: expected that of its image, {[height, width]}')
    runs = _unpacked(counts) if isinstance(counts, str | bytes) else counts
    if not all(isinstance(run, Integral) and run >= 0 for run in runs) or sum(runs) != width * height:
        raise ValueError(f'RLE of size {size}: its counts are no {width * height} pixels')


def _unpacked(counts: str | bytes) -> list[int]:
    """Run lengths of COCO's compressed form.

    Each is a number of 5 bits to a character, low bits first, with a sign; from the fourth on it is the difference from
    the run before the last.
    """
    runs, value, shift = [], 0, 0
    for byte in counts.encode() if isinstance(counts, str) else counts:
        digit = byte - ord('0')
        if not 0 <= digit < 64:
            raise ValueError(f'RLE with the character {chr(byte)!r}: allowed are those from 0 to o')
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            value -= (1 << shift) if digit & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return [*runs, -1] if shift else runs  # a number that is cut short


# --- annotation files ---


def coco_complaints(content: Mapping, max_pixels: int = MAX_PIXELS) -> Iterator[tuple[str, str]]:
    """Names, sizes, boxes and masks of a COCO file that are outside of the limits.

    Yields:
        The image, category or annotation, such as ``'annotation 7'``, and what is wrong with it.
    """
    yield from wrong_names(content)
    sizes = {}
    for image in _entries(content, 'images'):
        size = image.get('width'), image.get('height')
        if None in size:
            continue
        reason = _reason(check_annotated_size, *size, max_pixels)
        if reason:
            yield f'image {image.get("id")}', reason
        else:
            sizes[str(image.get('id'))] = size
    for annotation in _entries(content, 'annotations'):
        size = sizes.get(str(annotation.get('image_id')))
        if size is None:
            continue
        mask = annotation.get('segmentation')
        if isinstance(mask, Mapping) and not isinstance(mask.get('counts'), list | str):
            reason = f'RLE with counts {mask.get("counts")!r}: expected a list of numbers or a text'
        else:
            reason = _reason(check_shapes, _corners(annotation.get('bbox'), *size), mask, *size)
        if reason:
            yield f'annotation {annotation.get("id")}', reason


def without_score(content: Mapping, masks: bool) -> Iterator[tuple[str, str]]:
    """Objects of a COCO file that pycocotools cannot score, which it finds after an epoch.

    Args:
        content: That of the file.
        masks: Whether masks are scored, too.

    Yields:
        The annotation, and what is missing.
    """
    for annotation in _entries(content, 'annotations'):
        if 'bbox' not in annotation:
            continue  # of segments
        what, crowd = f'annotation {annotation.get("id")}', annotation.get('iscrowd', 'missing')
        if crowd not in (0, 1):
            yield what, f'iscrowd {crowd!r}: expected 0 or 1'
        if not isinstance(annotation.get('area'), Real):
            yield what, f'area {annotation.get("area", "missing")!r}: expected a number'
        if masks and not _is_mask(annotation.get('segmentation')):
            mask = str(annotation.get('segmentation', 'missing'))[:80]
            yield what, f'segmentation {mask}: expected polygons of three points or more, or an RLE'


def _is_mask(mask) -> bool:
    return bool(mask) and (isinstance(mask, Mapping) or all(isinstance(p, list) and len(p) >= 6 for p in mask))


def wrong_names(content: Mapping) -> Iterator[tuple[str, str]]:
    """Categories of a COCO file whose names are no texts, and images of places outside of the data set.

    Yields:
        The category or image, and what is wrong with it.
    """
    for category in _entries(content, 'categories'):
        name = category.get('name', 'missing')
        if not (isinstance(name, str) and name.strip()):
            yield f'category {category.get("id")}', f'name {name!r}: expected a text'
    for image in _entries(content, 'images'):
        name = image.get('file_name', 'missing')
        if not isinstance(name, str) or os.path.isabs(name):
            yield f'image {image.get("id")}', f'file_name {name!r}: expected a path below the folder of the images'


def _entries(content: Mapping, key: str) -> Iterator[Mapping]:
    entries = content.get(key)
    return (entry for entry in (entries if isinstance(entries, list) else ()) if isinstance(entry, Mapping))


def _corners(box, width: int, height: int) -> list | None:
    """Corners of a box given as x, y, width and height; None for other forms, and for what mmdet leaves out."""
    if not (isinstance(box, list) and len(box) == 4 and all(isinstance(number, Real) for number in box)):
        return None
    left, top, right, bottom = *box[:2], box[0] + box[2], box[1] + box[3]
    return [left, top, right, bottom] if left < width and top < height and right > 0 and bottom > 0 else None


def _reason(check: Callable[..., None], *args) -> str | None:
    try:
        check(*args)
    except ValueError as error:
        return str(error)
    return None
