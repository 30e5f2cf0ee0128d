"""Files of a sample, judged by what the loaders of the config's pipeline make of them."""

import unicodedata
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import LoadAnnotations, LoadImageFromFile
from PIL import Image, UnidentifiedImageError

from .sources import Source

# An image whose largest value is below this one, of 255, has lost its contrast.
DARK = 64


class Unreadable(ValueError):
    """An image that cannot be decoded; a training puts another one in its place."""


def look_at(source: Source, info: dict) -> ValueError | None:
    """Looks at the files of a sample as training loads them.

    Returns:
        What is wrong; :class:`Unreadable` if an image cannot be decoded.
    """
    steps = source.dataset.pipeline.transforms
    load = next((step for step in steps if isinstance(step, LoadImageFromFile)), None)
    load_map = next((step for step in steps if isinstance(step, LoadAnnotations) and 'seg_fields' in info), None)
    size, path = (info.get('width'), info.get('height')), info.get('img_path')
    try:
        if load_map:
            pixels = _load_map(load_map, info)
            size, number = pixels.shape[::-1], len(source.classes)
            labels = {*np.unique(pixels).tolist()} - {source.dataset.ignore_index}
            if wrong := sorted(label for label in labels if label >= number > 0):
                raise ValueError(f'{info["seg_map_path"]}: labels outside of the {number} classes: {wrong[:8]}')
        if load and path:
            _check_image(path, load, size)
    except ValueError as error:
        return error
    except Exception as error:  # whatever decoders raise
        file = info['seg_map_path'] if load_map else path
        return Unreadable(f'{file}: cannot be loaded: {type(error).__name__}: {error}')
    return None


def _load_map(load_map: LoadAnnotations, info: dict) -> np.ndarray:
    """The labels of the pixels as training has them, ``(height, width)``."""
    path = info['seg_map_path']
    with Image.open(path) as image:
        stored = np.asarray(image)
    if stored.ndim > 2 or stored.max(initial=0) > 255:
        raise ValueError(
            f'{path}: label map of shape {stored.shape} with values to {stored.max()}: expected one channel of class '
            'indices up to 255, which is ignored (LoadAnnotations cuts them to 8 bits)'
        )
    return load_map(dict(info))['gt_seg_map']


def _check_image(path: str, load: LoadImageFromFile, annotated: tuple) -> None:
    """Compares an image, as it is loaded, with its file and with its (width, height) in annotations."""
    if not Path(path).is_file():
        raise ValueError(f'no such image: {path}{_similar(path)}')
    try:
        image = load(dict(img_path=path))['img']
        # More strictly than training does, which takes a truncated JPEG as it is.
        with suppress(UnidentifiedImageError, Image.DecompressionBombError), Image.open(path) as whole:
            whole.load()
    except Exception as error:  # decoders of any kind
        raise Unreadable(f'{path}: cannot be loaded: {type(error).__name__}: {error}') from error
    if image.dtype == np.uint8 and image.max(initial=0) < DARK:
        stored = cv2.imread(path, cv2.IMREAD_UNCHANGED)
        if stored is not None and stored.max() > image.max():
            raise ValueError(
                f'{path}: values to {stored.max()} are loaded as at most {image.max()} of 255, almost black: scale '
                'them and save the image with 8 bits'
            )
    loaded = image.shape[1::-1]
    if all(annotated) and annotated != loaded:
        how = 'annotate the images that are loaded'
        if loaded == annotated[::-1]:
            how = (
                'width and height are swapped. Where EXIF turns the image, color_type in the LoadImageFromFile of this '
                "data set decides: 'color_ignore_orientation' loads the stored pixels, 'color' the turned ones"
            )
        sizes = f'{loaded[0]} x {loaded[1]} pixels as loaded, and is annotated as {annotated[0]} x {annotated[1]}'
        raise ValueError(f'{path}: {sizes}: {how}')


def _similar(path: str) -> str:
    """Says how a file is called that a missing name most likely means; '' if there is none."""
    plain = unicodedata.normalize('NFC', path).replace('\\', '/').lower()
    for other in Path(path).parent.glob('*'):
        if plain.endswith(unicodedata.normalize('NFC', other.name).lower()):
            why = 'a backslash separates no folders here' if '\\' in path else 'capitals or the Unicode form differ'
            return f'; there is {other.name} ({why}): write the name as the file has it'
    return ''
