"""Files of a sample, judged by what the loaders of the config's pipeline make of them."""

from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import LoadAnnotations, LoadImageFromFile
from PIL import Image, UnidentifiedImageError

from .sources import Source

# An image whose largest value is below this one, of 255, has lost its contrast.
DARK = 64


class Misfit(ValueError):
    """A file that can be decoded, and not be learnt from."""


class Unreadable(ValueError):
    """A file that cannot be decoded; a training puts another sample in the place of this one."""


def look_at(source: Source, info: dict) -> Misfit | Unreadable | None:
    """Looks at the files of a sample as training loads them; gives what is wrong."""
    load, load_map = (
        next((step for step in source.dataset.pipeline.transforms if isinstance(step, kind)), None)
        for kind in (LoadImageFromFile, LoadAnnotations)
    )
    file, size = info.get('img_path'), (info.get('width'), info.get('height'))
    try:
        if load_map and 'seg_fields' in info:
            file = info['seg_map_path']
            size = _check_map(load_map, info, len(source.classes), source.dataset.ignore_index)
        if load and 'img_path' in info:
            file = info['img_path']
            _check_image(file, load, size)
    except Misfit as error:
        return error
    except Exception as error:  # whatever decoders raise
        return Unreadable(f'{file}: cannot be loaded: {type(error).__name__}: {error}')
    return None


def _check_map(load_map: LoadAnnotations, info: dict, classes: int, ignored: int) -> tuple[int, int]:
    """Checks the labels of the pixels as training has them; gives their width and height."""
    path = info['seg_map_path']
    with Image.open(path) as image:
        stored = np.asarray(image)
    if stored.ndim > 2 or stored.max(initial=0) > 255:
        raise Misfit(
            f'{path}: label map of shape {stored.shape} with values to {stored.max()}: expected one channel of class '
            'indices up to 255, which is ignored (LoadAnnotations cuts them to 8 bits)'
        )
    labels = load_map(dict(info))['gt_seg_map']
    if wrong := [label for label in np.unique(labels).tolist() if label >= classes > 0 and label != ignored]:
        raise Misfit(f'{path}: labels outside of the {classes} classes: {wrong[:8]}')
    return labels.shape[::-1]


def _check_image(path: str, load: LoadImageFromFile, annotated: tuple) -> None:
    """Compares an image, as it is loaded, with its file and with its (width, height) in annotations."""
    if not Path(path).is_file():
        form = 'with / between folders, and with its capitals and Unicode form'
        raise Misfit(f'no such image: {path}: write the name as the file has it, {form}')
    image = load(dict(img_path=path))['img']
    # More strictly than training does, which takes a truncated JPEG as it is.
    with suppress(UnidentifiedImageError, Image.DecompressionBombError), Image.open(path) as whole:
        whole.load()
    if image.dtype == np.uint8 and image.max(initial=0) < DARK:
        stored = cv2.imread(path, cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR)
        if stored is not None and stored.max() > image.max():
            raise Misfit(
                f'{path}: values to {stored.max()} are loaded as at most {image.max()} of 255, almost black: scale '
                'them and save the image with 8 bits'
            )
    loaded = image.shape[1::-1]
    if all(annotated) and annotated != loaded:
        turned = (
            ". Where EXIF turns images, color_type='color_ignore_orientation' in LoadImageFromFile loads the stored "
            "pixels, and 'color' the turned ones"
        )
        raise Misfit(
            f'{path}: {loaded[0]} x {loaded[1]} pixels as loaded, and is annotated as {annotated[0]} x {annotated[1]}: '
            f'annotate the images that are loaded{turned if annotated == loaded[::-1] else ""}'
        )
