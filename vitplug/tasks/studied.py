"""What a relevance map of an image is to explain, its mask in the ground truth, and its score in other predictions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from mmengine.structures import BaseDataElement

from .kept import IOU, probabilities
from .outcomes import NO_LABEL, Outcome
from .targets import BoxScore, ClassLogit, PixelClass, Target


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


def studied_map(sample: BaseDataElement, truth: Outcome | None) -> Studied:
    """Of a sample of mmseg: the class with the second most pixels in the ground truth, or else in the prediction.

    The class with the most pixels is mostly the background.

    Raises:
        ValueError: If there is no second class, or it is predicted at no pixel.
    """
    predicted = sample.pred_sem_seg.data[0]
    labels = predicted.numpy() if truth is None else truth.labels
    present, counts = np.unique(labels[labels != NO_LABEL], return_counts=True)
    if len(present) < 2:
        raise ValueError('the image has one class alone, the background')
    label = int(present[np.argsort(-counts, kind='stable')[1]])
    region = predicted == label
    if not region.any():
        raise ValueError(f'class {label} is predicted at no pixel')
    mask = None if truth is None else truth.labels == label
    return Studied(
        PixelClass(label), lambda after: float(probabilities(after.seg_logits.data)[label][region].mean()), mask
    )


def studied_objects(sample: BaseDataElement, found: Outcome, truth: Outcome | None, size: tuple[int, int]) -> Studied:
    """Of a sample of mmdet: the box with the highest score, and the annotated object of its class and place.

    Args:
        sample: The prediction.
        found: The same with boxes in pixels of the input.
        truth: The annotated objects; None if they are unknown.
        size: Height and width of the input.

    Raises:
        ValueError: If there is no box.
    """
    from torchvision.ops import box_iou

    if not found.boxes:
        raise ValueError('no box has a score that is high enough')
    first = sample.pred_instances[sample.pred_instances.scores.argsort(descending=True)[:1]]

    def score(after: BaseDataElement) -> float:
        boxes = after.pred_instances
        same = (box_iou(first.bboxes, boxes.bboxes)[0] >= IOU) & (boxes.labels == first.labels)
        return float(boxes.scores[same].max()) if same.any() else 0.0

    return Studied(BoxScore(0), score, None if truth is None else _mask(found.boxes[0], truth, size))


def _mask(predicted: tuple, truth: Outcome, size: tuple[int, int]) -> np.ndarray | None:
    """The pixels of the annotated object that a box found; its box where there are no masks."""
    from torchvision.ops import box_iou

    box, _, label = predicted
    same = torch.tensor([other for other, _, kind in truth.boxes if kind == label], dtype=torch.float64).reshape(-1, 4)
    overlaps = box_iou(torch.tensor([box], dtype=torch.float64), same)[0]
    if not (overlaps >= IOU).any():
        return None
    left, top, right, bottom = same[overlaps.argmax()].tolist()
    inside = np.zeros(size, bool)
    inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
    mask = inside if truth.labels is None else inside & (truth.labels == label)
    return mask if mask.any() else None
