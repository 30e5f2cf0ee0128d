"""Labels that would be read as others: on pixels that they were not drawn on, or cut to 8 bits."""

from collections.abc import Iterable, Mapping

import numpy as np
from PIL import Image

from vitplug.files.orientation import Header

# mmseg's and mmdet's LoadAnnotations cut label maps to 8 bits.
LARGEST_LABEL = 255
MISPLACED = 'annotations on other pixels than those that are loaded'
DOUBTFUL = 'image that EXIF turns, with annotations that fit its stored pixels, too'
CUT = f'label map with labels above {LARGEST_LABEL}, which LoadAnnotations cuts to 8 bits'


def label_cut_to_8_bits(path: str | None, headers: Mapping[str, Header | None], transforms: Iterable) -> int:
    """The largest label of a map that would be cut to 8 bits; 0 for none."""
    header = headers.get(path)
    if header is None or not header.mode.startswith(('I', 'F')):
        return 0
    if not any(type(step).__name__ == 'LoadAnnotations' for step in transforms):
        return 0
    with Image.open(path) as image:
        largest = int(np.asarray(image).max(initial=0))
    return largest if largest > LARGEST_LABEL else 0
