"""Labels of samples, as mmpretrain, mmseg and mmdet pack them, and their checks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

IGNORED_LABEL = 255
CLASS_INDICES = f'expected one channel of class indices, where {IGNORED_LABEL} is ignored, not colours'

ImageSize = tuple[int, int] | None
"""Height and width of the image that a label belongs to; None if unknown."""


@dataclass(frozen=True)
class Label:
    """An annotation of a sample.

    Attributes:
        check: Checks one; takes it, the size of its image, and the number of classes (None if unknown).
        evaluated: True if it is checked in evaluation as well, before the model predicts.
        values: The labels as plain numbers, for a record; None if they are not recorded.
    """

    check: Callable[[Any, ImageSize, int | None], None]
    evaluated: bool = False
    values: Callable[[Any], list | int] | None = None


def check_labels(labels: Tensor, num_classes: int | None, ignored: int | None = None) -> None:
    """Checks labels, integers of any shape; where the number of classes is not known, that none is negative.

    Raises:
        ValueError: names those outside of the classes.
    """
    outside = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
    wrong = labels[outside & (labels != ignored)] if ignored is not None else labels[outside]
    if len(wrong):
        classes = 'classes' if num_classes is None else f'{num_classes} classes'
        raise ValueError(f'labels {wrong.unique().tolist()[:5]} are outside of the {classes}')


def check_class(label: Tensor, size: ImageSize, num_classes: int | None) -> None:
    """Checks the class of an image; soft labels, which are shares, pass.

    Raises:
        ValueError: names the class, if it is none.
    """
    if not label.is_floating_point():
        check_labels(label, num_classes)


def check_token_labels(labels: Tensor, size: ImageSize, num_classes: int | None) -> None:
    """Checks the labels of tokens, of which row 1 has the classes.

    Raises:
        ValueError: names those outside of the classes.
    """
    check_labels(labels[1], num_classes)


def check_channels(shape: Sequence[int]) -> None:
    """Checks the shape of a label map as mmseg packs it, (1, height, width).

    Raises:
        ValueError: if it has more channels, which come last where a picture of colours is taken for a label map.
    """
    if len(shape) == 3 and shape[0] != 1:
        raise ValueError(f'the label map has {shape[-1]} channels: {CLASS_INDICES}')


def check_map(seg_map, size: ImageSize, num_classes: int | None) -> None:
    """Checks a label map.

    Raises:
        ValueError: if it is one of colours, has another size than its image, or a label outside of the classes.
    """
    check_channels(seg_map.data.shape)
    if size is None:
        return
    map_size = tuple(seg_map.data.shape[-2:])
    if map_size != size:
        raise ValueError(f'the label map has size {map_size}, the image {size}')
    check_labels(seg_map.data, num_classes, ignored=IGNORED_LABEL)


def check_instances(instances, size: ImageSize, num_classes: int | None) -> None:
    """Checks the labels of objects.

    Raises:
        ValueError: names those outside of the classes.
    """
    check_labels(instances.labels, num_classes)
