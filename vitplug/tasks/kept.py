"""How much of a prediction another one for the same image keeps: of a changed model, or of a changed image."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # mmengine, which models of other libraries do without
    from mmengine.structures import BaseDataElement

#: Least overlap of two boxes of one object.
IOU = 0.5


@dataclass(frozen=True)
class Kept:
    """What is left of a prediction; NaN if there was none.

    Attributes:
        score: Mean score, from 0 to 1, of what was predicted: the class, each pixel's class, or the boxes.
        share: Share of it that is still predicted.
    """

    score: float
    share: float


def kept_class(before: 'BaseDataElement', after: 'BaseDataElement') -> Kept:
    """Of samples of mmpretrain: the probability of the class that was predicted."""
    label = int(before.pred_score.argmax())
    return Kept(float(after.pred_score[label]), float(int(after.pred_score.argmax()) == label))


def kept_map(before: 'BaseDataElement', after: 'BaseDataElement') -> Kept:
    """Of samples of mmseg: the probability of each pixel's class, mean over pixels."""
    labels = before.pred_sem_seg.data
    same = (labels == after.pred_sem_seg.data).double().mean()
    return Kept(float(probabilities(after.seg_logits.data).gather(0, labels).mean()), float(same))


def probabilities(logits_CHW: Tensor) -> Tensor:
    """Of the classes of each pixel; one output for two classes is that of the second."""
    if len(logits_CHW) > 1:
        return logits_CHW.double().softmax(0)
    second = logits_CHW.double().sigmoid()
    return torch.cat((1 - second, second))


def kept_objects(before: 'BaseDataElement', after: 'BaseDataElement', score_thr: float) -> Kept:
    """Of samples of mmdet: the score of the best box of the same class and place, 0 without one, mean over boxes."""
    from torchvision.ops import box_iou

    old, new = before.pred_instances, after.pred_instances
    old = old[old.scores >= score_thr]
    if not len(old):
        return Kept(float('nan'), float('nan'))
    same = (box_iou(old.bboxes, new.bboxes) >= IOU) & (old.labels[:, None] == new.labels)
    best = torch.cat((same * new.scores, torch.zeros(len(old), 1)), dim=1).amax(1)
    return Kept(float(best.double().mean()), float((best >= score_thr).double().mean()))
