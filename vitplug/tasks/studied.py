"""What a relevance map of an image is to explain, its mask in the ground truth, and its score in other predictions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mmengine.structures import BaseDataElement

from .kept import probabilities
from .targets import ClassLogit, PixelClass, Target

#: Label of pixels without a class.
NO_LABEL = 255


@dataclass(frozen=True)
class Studied:
    """A prediction under study.

    Attributes:
        target: Its score, for gradients.
        score: Its score from 0 to 1 in another prediction for the same image.
        mask: Its pixels of the input in the ground truth ``(height, width)``; None if they are unknown.
    """

    target: Target
    score: Callable[[BaseDataElement], float]
    mask: np.ndarray | None = None


def studied_class(sample: BaseDataElement) -> Studied:
    """The predicted class of a sample of mmpretrain; it has no mask."""
    label = int(sample.pred_score.argmax())
    return Studied(ClassLogit(label), lambda after: float(after.pred_score[label]))


def studied_map(sample: BaseDataElement, truth: np.ndarray | None) -> Studied:
    """Of a sample of mmseg: the class with the second most pixels in the ground truth, or else in the prediction.

    The class with the most pixels is mostly the background.

    Args:
        sample: The prediction.
        truth: Label of every pixel of the input ``(height, width)``, 255 for none; None if unknown.

    Raises:
        ValueError: If there is no second class, or it is predicted at no pixel.
    """
    predicted = sample.pred_sem_seg.data[0]
    labels = predicted.numpy() if truth is None else truth
    present, counts = np.unique(labels[labels != NO_LABEL], return_counts=True)
    if len(present) < 2:
        raise ValueError('the image has one class alone, the background')
    label = int(present[np.argsort(-counts, kind='stable')[1]])
    region = predicted == label
    if not region.any():
        raise ValueError(f'class {label} is predicted at no pixel')
    mask = None if truth is None else truth == label
    return Studied(
        PixelClass(label), lambda after: float(probabilities(after.seg_logits.data)[label][region].mean()), mask
    )
