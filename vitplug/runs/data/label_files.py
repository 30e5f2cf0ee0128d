"""Labels that would be read as others: on pixels that they were not drawn on, or cut to 8 bits."""

import multiprocessing
from collections.abc import Iterable, Mapping

import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.logging import print_log
from PIL import Image

from vitplug.errors.stops import BadSample
from vitplug.files.limits import check_source
from vitplug.files.orientation import Header, misplaced, remedy, turned_formats

# mmseg's and mmdet's LoadAnnotations cut label maps to 8 bits.
LARGEST_LABEL = 255
MISPLACED = 'annotations on other pixels than those that are loaded'
DOUBTFUL = 'image that EXIF turns, with annotations that fit its stored pixels, too'
CUT = f'label map with labels above {LARGEST_LABEL}, which LoadAnnotations cuts to 8 bits'


class WrongLabels(BadSample):
    """Labels of a sample would be read as others. It is not left out: others of its data set will have the same."""


class SampleFiles:
    """Checks what a sample is made of, before the pipeline of its data set reads it.

    An image that EXIF turns, and whose annotations fit it both ways, is named in a warning, once for the data set.

    Args:
        dataset: mmengine's data set.
        max_pixels: Largest image.
    """

    def __init__(self, dataset: BaseDataset, max_pixels: int):
        self.dataset, self.max_pixels = dataset, max_pixels
        self.warned = multiprocessing.Value('b', False)  # shared with the workers of a loader

    def check(self, index: int) -> None:
        """Checks one sample.

        Raises:
            ValueError: if a file or an annotation is outside of the limits.
            WrongLabels: if its labels would be read as others; says what to do.
        """
        info = self.dataset.get_data_info(index)
        headers = check_source(info, self.max_pixels)
        transforms = getattr(self.dataset.pipeline, 'transforms', ())
        too_large = label_cut_to_8_bits(info.get('seg_map_path'), headers, transforms)
        if too_large:
            raise WrongLabels(f'{info["seg_map_path"]}: {CUT} ({too_large}): at most {LARGEST_LABEL} classes')
        image, size = headers.get(info.get('img_path')), annotated_size(info, headers)
        if image is None or size is None:
            return
        turns = image.format in turned_formats(transforms)
        wrong = misplaced(image, size, turns)
        if wrong:
            raise WrongLabels(
                f'{info["img_path"]}: {MISPLACED} (EXIF orientation {image.orientation}): {remedy(turns)}'
            )
        if wrong is None:
            self.warn(f'{info["img_path"]}: {DOUBTFUL}: if they were drawn on these, {remedy(turns)}')

    def warn(self, text: str) -> None:
        """Logs a warning, unless one was logged for this data set."""
        with self.warned.get_lock():
            first, self.warned.value = not self.warned.value, True
        if first:
            print_log(text, 'current', level=30)


def annotated_size(info: Mapping, headers: Mapping[str, Header | None]) -> tuple[int, int] | None:
    """Width and height that the annotations of a sample give its image; None for labels without a place in it."""
    label_map = headers.get(info.get('seg_map_path'))
    if label_map is not None:
        return label_map.size
    size = info.get('width'), info.get('height')
    return size if info.get('instances') and None not in size else None


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
