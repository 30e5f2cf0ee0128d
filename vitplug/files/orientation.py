"""EXIF orientation: whether annotations lie on the pixels that are loaded.

A camera may store an image turned and note in its EXIF data how to show it. Loaders turn it unless they are told not
to; label maps and boxes are never turned. Most annotation tools show the turned image, and their labels fit what is
loaded. Labels drawn on the stored pixels need `color_type='color_ignore_orientation'`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from PIL import Image

ORIENTATION = 0x0112
UPRIGHT = 1
QUARTER_TURNS = (5, 6, 7, 8)  # swap width and height
# Formats that the decoders of mmcv turn, by Pillow's names; turbojpeg and tifffile turn none. Pillow and OpenCV turn
# TIFF whatever they are told, and Pillow gives the size after it.
_BY_OPENCV = ('JPEG', 'MPO', 'PNG')
TURNED_FORMATS = {None: _BY_OPENCV, 'cv2': _BY_OPENCV, 'pillow': (*_BY_OPENCV, 'WEBP')}
# mmcv's flags of decoding with which images are turned.
TURNING_FLAGS = ('color', 'grayscale')


class Header(NamedTuple):
    """The header of an image file.

    Attributes:
        size: Stored width and height, in pixels.
        format, mode: Pillow's names of the file's format and of the pixels' type.
        orientation: That of EXIF, from 1 (upright) to 8.
    """

    size: tuple[int, int]
    format: str
    mode: str
    orientation: int

    def loaded_size(self, turns: bool) -> tuple[int, int]:
        """Width and height as loaded, by a loader that turns images or not."""
        return self.size[::-1] if turns and self.orientation in QUARTER_TURNS else self.size


def header_of(image: Image.Image) -> Header:
    """The header of an opened image."""
    # Without EXIF before its pixels, Pillow decodes a whole PNG to look for it.
    exif = image.getexif() if 'exif' in image.info else {}
    orientation = exif.get(ORIENTATION, UPRIGHT)
    return Header(image.size, image.format, image.mode, orientation if orientation in range(1, 9) else UPRIGHT)


def turned_formats(transforms: Iterable) -> tuple[str, ...]:
    """The formats of images that a built pipeline turns as it loads them."""
    for step in transforms:
        if hasattr(step, 'color_type') and hasattr(step, 'imdecode_backend'):
            return TURNED_FORMATS.get(step.imdecode_backend, ()) if step.color_type in TURNING_FLAGS else ()
    return _BY_OPENCV


def misplaced(header: Header, annotated_size: tuple[int, int], turns: bool) -> bool | None:
    """Whether annotations lie on other pixels than those that are loaded, told from the size they give the image.

    Args:
        header: Of the image file.
        annotated_size: Width and height that the annotations give.
        turns: Whether the loader turns this image.

    Returns:
        None where sizes cannot tell, since the turned image has the size of the stored one.
    """
    if header.orientation == UPRIGHT:
        return False
    if header.loaded_size(True) == header.size:
        return None if turns else False  # not to turn it is a decision
    return tuple(annotated_size) == header.loaded_size(not turns)


def remedy(turns: bool) -> str:
    """What to do about annotations on other pixels than those that are loaded."""
    flag, pixels = ('color_ignore_orientation', 'stored') if turns else ('color', 'turned')
    return f"set color_type='{flag}' in the LoadImageFromFile of this data set, which loads the {pixels} pixels"
