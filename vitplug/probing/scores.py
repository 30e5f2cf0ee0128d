"""Scores of probes: top-1 and mean per class of images; mIoU of maps, by mmseg's metric.

Shape suffixes: N samples, C classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import Record


def accuracy(scores_NC: Tensor, targets_NC: Tensor) -> float:
    """Share of the targets that are in the classes with the highest scores."""
    return float(targets_NC.gather(1, scores_NC.argmax(1, keepdim=True)).sum() / targets_NC.sum())


def patch_iou(scores_NC: Tensor, targets_NC: Tensor) -> float:
    """mIoU over pixels if each pixel has the prediction of its patch; classes that neither has are left out."""
    predicted_NC = F.one_hot(scores_NC.argmax(1), scores_NC.shape[1]).to(targets_NC)
    both_C = (predicted_NC * targets_NC).sum(0)
    known_N = targets_NC.sum(1, keepdim=True)
    union_C = (predicted_NC * known_N).sum(0) + targets_NC.sum(0) - both_C
    return float((both_C / union_C)[union_C > 0].mean())


class Scorer(ABC):
    """Takes the test images one by one; knows the score of all.

    Attributes:
        main: Name of the value that models are compared by.
        choice: Score by which settings are chosen on held-out samples.
    """

    main: str
    choice: Callable[[Tensor, Tensor], float]

    def __init__(self, classes: int):
        self.classes = classes

    @abstractmethod
    def add(self, scores_NC: Tensor, record: Record) -> np.ndarray:
        """Adds an image and returns its prediction."""

    @abstractmethod
    def values(self) -> dict[str, np.ndarray]:
        """The values in percent, by name; ``per_class`` has a row ``(C,)``, NaN for classes that no image has."""


class ClassScorer(Scorer):
    """Top-1, and the mean over classes of the share of their images that are right."""

    main = 'top-1'
    choice = staticmethod(accuracy)

    def __init__(self, classes: int):
        super().__init__(classes)
        self._right, self._all = np.zeros(classes), np.zeros(classes)

    def add(self, scores_NC, record):
        predicted = int(scores_NC[0].argmax())
        truth = int(record.label)
        self._all[truth] += 1
        self._right[truth] += predicted == truth
        return np.array(predicted)

    def values(self):
        with np.errstate(invalid='ignore'):
            per_class = 100 * self._right / self._all
        overall = 100 * self._right.sum() / self._all.sum()
        return {'top-1': overall, 'mean per class': np.nanmean(per_class), 'per_class': per_class}


class MapScorer(Scorer):
    """mIoU, mean accuracy of classes and accuracy of pixels, as mmseg's `IoUMetric` has them.

    Scores of patches are enlarged bilinearly to the pixels of the model's input, padding is cut off, and the rest is
    resized to the label map: what mmseg does with the logits of a decode head.
    """

    main = 'mIoU'
    choice = staticmethod(patch_iou)

    def __init__(self, classes: int):
        super().__init__(classes)
        self._areas = [torch.zeros(classes, dtype=torch.float64) for _ in range(4)]

    def add(self, scores_NC, record):
        from mmseg.evaluation.metrics import IoUMetric

        predicted = enlarge(scores_NC, record).argmax(0).cpu()
        label = torch.from_numpy(np.asarray(record.label).astype(np.int64))
        areas = IoUMetric.intersect_and_union(predicted, label, self.classes, ignore_index=record.VOID)
        self._areas = [total + area for total, area in zip(self._areas, areas, strict=True)]
        return predicted.numpy().astype(np.int16)

    def values(self):
        from mmseg.evaluation.metrics import IoUMetric

        metrics = IoUMetric.total_area_to_metrics(*self._areas, ['mIoU'])
        per_class = 100 * np.asarray(metrics['IoU'])
        return {
            'mIoU': np.nanmean(per_class),
            'mAcc': 100 * np.nanmean(metrics['Acc']),
            'aAcc': 100 * float(metrics['aAcc']),
            'per_class': per_class,
        }


def enlarge(scores_NC: Tensor, record: Record) -> Tensor:
    """Scores of patches as a map ``(C, height, width)`` of the size of the label map."""
    maps = scores_NC.T.reshape(1, -1, *record.grid).float()
    maps = _resized(maps, record.padded)[..., : record.shape[0], : record.shape[1]]
    return _resized(maps, record.label.shape)[0]


def _resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(maps, tuple(map(int, size)), mode='bilinear', align_corners=False)
