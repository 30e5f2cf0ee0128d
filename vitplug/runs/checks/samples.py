"""Files of a sample, judged by what the loaders of the config's pipeline make of them."""

import unicodedata
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import LoadAnnotations, LoadImageFromFile
from PIL import Image

from .sources import Source

# An image whose largest value is below this one, of 255, has lost its contrast.
DARK = 64


class Unreadable(ValueError):
    """An image that cannot be decoded; a training puts another one in its place."""


def look_at(source: Source, info: dict) -> tuple[list[str], list[int]]:
    """Looks at the files of a sample as training loads them.

    Args:
        source: The data set.
        info: What it tells of the sample.

    Returns:
        Faults, and the labels of the sample: of its objects, its pixels or the image.

    Raises:
        Unreadable: If the image cannot be decoded.
    """
    load, load_map, number = None, None, len(source.classes)
    for step in source.dataset.pipeline.transforms:
        if isinstance(step, LoadImageFromFile):
            load = load or step
        elif isinstance(step, LoadAnnotations) and 'seg_fields' in info:
            load_map = step
    size, labels, file = (info.get('width'), info.get('height')), labels_of(info), info.get('img_path')
    if load_map:
        file = info['seg_map_path']
        if fault := map_fault(read_map(file)):
            return [f'{file}: {fault}'], []
        pixels = load_map(dict(info))['gt_seg_map']
        size = pixels.shape[::-1]
        labels = [label for label in np.unique(pixels).tolist() if label != source.dataset.ignore_index]
    wrong = [label for label in labels if label >= number > 0]
    faults = [f'{file}: labels outside of the {number} classes: {wrong[:8]}'] if wrong else []
    return faults + (_image_faults(info['img_path'], load, size) if load else []), labels


def labels_of(info: Mapping) -> list[int]:
    """The classes that a data set tells of the objects of a sample, or of its image."""
    if 'instances' in info:
        return [one['bbox_label'] for one in info['instances'] if not one.get('ignore_flag')]
    label = info.get('gt_label')
    return [] if label is None else [int(value) for value in np.ravel(label)]


def read_map(path: str | Path) -> np.ndarray:
    """The values of a label map, ``(height, width)``, as they are stored; of a map of colours with their channels."""
    try:
        with Image.open(path) as image:
            return np.asarray(image)
    except (OSError, SyntaxError) as error:  # as Pillow has it for a broken PNG file
        raise Unreadable(f'{path}: {error}') from error


def map_fault(values: np.ndarray) -> str:
    """What is wrong with a label map, whatever its classes; '' if nothing is."""
    if values.ndim > 2:
        return f'label map of {values.shape[2]} channels: expected one of class indices, where 255 is ignored'
    if values.max(initial=0) > 255:
        return f'label map with the label {values.max()}: LoadAnnotations cuts labels to 8 bits'
    return ''


def _image_faults(path: str, load: LoadImageFromFile, annotated: tuple) -> list[str]:
    """Faults of an image, given how it is loaded and its (width, height) in annotations."""
    if not Path(path).is_file():
        return [f'no such image: {path}{_similar(path)}']
    try:
        image = load(dict(img_path=path))['img']
    except Exception as error:  # decoders of any kind
        raise Unreadable(f'{path}: {error}') from error
    faults = []
    if image.dtype == np.uint8 and image.max(initial=0) < DARK:
        stored = cv2.imread(path, cv2.IMREAD_UNCHANGED)
        if stored is not None and stored.max() > image.max():
            faults.append(
                f'{path}: values to {stored.max()} are loaded as at most {image.max()} of 255, almost black: scale '
                'them and save the image with 8 bits'
            )
    if all(annotated) and annotated != image.shape[1::-1]:
        faults.append(f'{path}: {_size_fault(image.shape[1::-1], annotated)}')
    return faults


def _size_fault(loaded: tuple[int, int], annotated: tuple[int, int]) -> str:
    """How two (width, height) differ, and what to do."""
    (width, height), (told_width, told_height) = loaded, annotated
    how = 'annotate the images that are loaded'
    if loaded == annotated[::-1]:
        how = (
            'width and height are swapped. Where EXIF turns the image, color_type in the LoadImageFromFile of this '
            "data set decides: 'color_ignore_orientation' loads the stored pixels, 'color' the turned ones"
        )
    elif width * told_height == height * told_width:
        how = f'the annotations are of images {told_width / width:g} times as large; scale one of the two'
    return f'{width} x {height} pixels as loaded, and is annotated as {told_width} x {told_height}: {how}'


def _similar(path: str) -> str:
    """Says how a file is called that a missing name most likely means; '' if there is none."""
    plain = unicodedata.normalize('NFC', path).replace('\\', '/').lower()
    there = Path(path).parent.iterdir() if Path(path).parent.is_dir() else ()
    for other in (file.name for file in there):
        if plain.endswith(unicodedata.normalize('NFC', other).lower()):
            why = 'a backslash separates no folders here' if '\\' in path else 'capitals or the Unicode form differ'
            return f'; there is {other} ({why}): write the name as the file has it'
    return ''
