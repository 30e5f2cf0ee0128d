"""Scores of a prediction whose gradients Grad-CAM takes: a class logit, the pixels of a class, a detected box."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Scores:
    """A score of each image of a batch.

    Attributes:
        values: ``(B,)``, with gradients.
        names: The score of each image in words.
    """

    values: Tensor
    names: tuple[str, ...]


#: Runs a model in evaluation mode on images ``(B, C, H, W)``, as the backbone gets them, and picks the score of each;
#: raises ValueError if there is no such score.
Target = Callable[[nn.Module, Tensor], Scores]


@dataclass(frozen=True)
class ClassLogit:
    """The logit of a class, before the softmax.

    Args:
        label: The class; None for the one with the largest logit.
        logits: The logits ``(B, C)`` of a model and images; by default, as a classifier of mmpretrain gives them.
    """

    label: int | None = None
    logits: Callable[[nn.Module, Tensor], Any] = lambda model, images: model(images, mode='tensor')

    def __call__(self, model, images) -> Scores:
        logits_BC = self.logits(model, images)
        if not isinstance(logits_BC, Tensor) or logits_BC.ndim != 2:
            raise ValueError(f'{type(model).__name__}: its head gives no logits (images, classes) to choose one of')
        _check_label(self.label, logits_BC.shape[1])
        labels = logits_BC.argmax(1).tolist() if self.label is None else [self.label] * len(images)
        values = torch.stack([logits[label] for logits, label in zip(logits_BC, labels, strict=True)])
        return Scores(values, tuple(f'logit of class {label}' for label in labels))


@dataclass(frozen=True)
class PixelClass:
    """The logits of a class, summed over the pixels that are predicted as it.

    The model sees the whole image at once, also where its ``test_cfg`` predicts by a sliding window. Pixels are those
    of the model's input; padding does not count.

    Args:
        label: The class; None for the one that most pixels have.
    """

    label: int | None = None

    def __call__(self, model, images) -> Scores:
        size = tuple(images.shape[-2:])
        logits_BCHW = model.encode_decode(images, [dict(img_shape=size)] * len(images))
        if logits_BCHW.shape[1] == 1:
            raise ValueError('the decode head has one output for two classes: expected a logit of each class')
        _check_label(self.label, logits_BCHW.shape[1])
        sized_logits = zip(logits_BCHW, _sizes(images), strict=True)
        scored = [self._of_image(logits[:, :height, :width]) for logits, (height, width) in sized_logits]
        return Scores(torch.stack([value for value, _ in scored]), tuple(name for _, name in scored))

    def _of_image(self, logits_CHW: Tensor) -> tuple[Tensor, str]:
        predicted = logits_CHW.argmax(0)
        label = int(predicted.flatten().mode().values) if self.label is None else self.label
        region = predicted == label
        if not region.any():
            raise ValueError(
                f'label={label}: predicted at no pixel, only {predicted.unique().tolist()} are; choose one of them'
            )
        return logits_CHW[label][region].sum(), f'logits of class {label}, summed over its {int(region.sum())} pixels'


@dataclass(frozen=True)
class BoxScore:
    """The score of a detected box, as the detector reports it.

    It is differentiated through the detector's own prediction, so it needs no knowledge of the heads: one stage or two,
    a cascade's mean over its stages, centerness. What is selected stays fixed: anchors, regions and suppression.
    With one sigmoid for each class, the map is that of the logit up to its scale.

    Args:
        index: The box, in the detector's order: 0 has the highest score.
    """

    index: int = 0

    def __call__(self, model, images) -> Scores:
        head = getattr(model, 'bbox_head', None)  # of detectors with one stage
        with nullcontext() if head is None else _attached(head):
            samples = model.predict(images, _samples(images), rescale=False)
        scored = [self._of_image(sample.pred_instances) for sample in samples]
        return Scores(torch.stack([value for value, _ in scored]), tuple(name for _, name in scored))

    def _of_image(self, boxes) -> tuple[Tensor, str]:
        if not 0 <= self.index < len(boxes):
            raise ValueError(
                f'index={self.index}: the detector finds {len(boxes)} boxes in the image, numbered from 0; choose one '
                'of them, or lower score_thr in its test_cfg'
            )
        score, label = boxes.scores[self.index], int(boxes.labels[self.index])
        corners = ', '.join(f'{side:.0f}' for side in boxes.bboxes[self.index].tolist())
        name = f'score of box {self.index}, class {label} at ({corners})'
        if score >= 1:
            raise ValueError(f'{name}: it is 1, and a saturated softmax has no gradients; choose another box')
        return score, name


@contextmanager
def _attached(head: nn.Module) -> Iterator[None]:
    """Keeps gradients where mmdet's dense heads detach their outputs before they select boxes."""
    select = head.predict_by_feat

    def predict_by_feat(*outs, **settings):
        with _NoDetach():
            return select(*outs, **settings)

    head.predict_by_feat = predict_by_feat  # the instance's, before the class's
    try:
        yield
    finally:
        del head.predict_by_feat


class _NoDetach(TorchFunctionMode):
    """``tensor.detach()`` gives the tensor itself."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0] if func is Tensor.detach else func(*args, **(kwargs or {}))


def _samples(images: Tensor) -> list:
    """mmdet's samples, with the sizes of the images before padding."""
    from mmdet.structures import DetDataSample

    padded = tuple(images.shape[-2:])
    common = dict(scale_factor=(1.0, 1.0), pad_shape=padded, batch_input_shape=padded)
    return [DetDataSample(metainfo=dict(common, img_shape=size, ori_shape=size)) for size in _sizes(images)]


def _sizes(images: Tensor) -> list[tuple[int, int]]:
    """Height and width of each image before padding."""
    from vitplug.hosting import valid_sizes  # mmcv, which most commands do without

    sizes = valid_sizes(images)
    return [tuple(images.shape[-2:])] * len(images) if sizes is None else [tuple(size) for size in sizes.tolist()]


def _check_label(label: int | None, num_classes: int) -> None:
    if label is not None and not 0 <= label < num_classes:
        raise ValueError(f'label={label}: expected 0 to {num_classes - 1}, or None for the predicted class')
