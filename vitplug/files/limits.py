"""Limits of files: images that unpack to gigabytes, and pipes, of which reading never ends."""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from PIL import Image

from .orientation import Header, header_of

# Largest image, in pixels: Pillow's own bound, 256 MiB as RGB.
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
        raise ValueError(f'{path} has {pixels:,} pixels: allowed are {max_pixels:,}')
    return header


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
