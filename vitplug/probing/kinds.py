"""What differs between the probed tasks: the truth of an image, its targets, the score."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from mmengine.structures import BaseDataElement

from .cache import Record
from .scores import ClassScorer, MapScorer, Scorer


class Kind(ABC):
    """A task that can be probed.

    Attributes:
        library: `default_scope` of its configs.
        dense: Whether patches are classified.
        chunk: Images in a file of the cache.
        scorer: Its score.
    """

    library: str
    dense: bool
    chunk: int
    scorer: type[Scorer]

    @abstractmethod
    def label(self, sample: BaseDataElement, classes: int) -> np.ndarray:
        """The truth of an image.

        Args:
            sample: As the pipeline packs it.
            classes: Number of classes.

        Raises:
            ValueError: If it has several labels where one is needed, or one that is no class.
        """

    @abstractmethod
    def targets(self, record: Record, classes: int) -> np.ndarray:
        """Shares of the classes ``(T, C)`` of the image or of its patches."""


class Classification(Kind):
    """One class for each image."""

    library, dense, chunk, scorer = 'mmpretrain', False, 256, ClassScorer

    def label(self, sample, classes):
        label = sample.gt_label
        if label.numel() != 1:
            raise ValueError(f'{_name(sample)} has {label.numel()} classes: only one for each image can be probed')
        return _checked(np.array(int(label)), sample, classes)

    def targets(self, record, classes):
        return np.eye(classes, dtype=np.float32)[int(record.label)][None]


class Segmentation(Kind):
    """One class for each pixel."""

    library, dense, chunk, scorer = 'mmseg', True, 16, MapScorer

    def label(self, sample, classes):
        label = sample.gt_sem_seg.data[0].numpy()
        _checked(label[label != Record.VOID], sample, classes)
        return label.astype(np.uint8 if label.max() < 256 else np.int32)

    def targets(self, record, classes):
        return patch_shares(record, classes)


def _checked(labels: np.ndarray, sample: BaseDataElement, classes: int) -> np.ndarray:
    """Labels as they are.

    Raises:
        ValueError: If one is no class.
    """
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise ValueError(
            f'{_name(sample)} has the label {wrong.flat[0]}: expected 0 to {classes - 1}, as there are {classes} '
            'names of classes; correct the label, or the metainfo of the data set'
        )
    return labels


def _name(sample: BaseDataElement) -> str:
    return str(sample.get('img_path') or f'image {sample.get("sample_idx")} in memory')


def patch_shares(record: Record, classes: int) -> np.ndarray:
    """The share of each patch's pixels in each class; void and padding are in none.

    Args:
        record: An image. Its label map may have another size than the model's input.
        classes: Number of classes, ``C``.

    Returns:
        ``(T, C)``, patches in reading order; each pixel of the label map counts for the patch that it is in.
    """
    rows, columns = (
        _patch_of(length, padded / shape, count)
        for length, padded, shape, count in zip(
            record.label.shape, record.padded, record.shape, record.grid, strict=True
        )
    )
    patches = rows[:, None] * record.grid[1] + columns[None]
    known = (record.label != record.VOID) & (record.label < classes)
    places = patches[known] * classes + record.label[known].astype(np.int64)
    size = record.grid[0] * record.grid[1]
    counts = np.bincount(places, minlength=size * classes).reshape(size, classes)
    area = record.label.size * (record.padded[0] / record.shape[0]) * (record.padded[1] / record.shape[1])
    return (counts / (area / size)).astype(np.float32)


def _patch_of(length: int, growth: float, count: int) -> np.ndarray:
    """The patch of each row or column of a label map, which padding makes longer by a factor."""
    centres = (np.arange(length) + 0.5) / (length * growth)
    return np.minimum((centres * count).astype(np.int64), count - 1)


KINDS: Mapping[str, Kind] = dict(classification=Classification(), segmentation=Segmentation())
