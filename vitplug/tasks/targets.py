"""Scores of a prediction whose gradients Grad-CAM takes: a class logit, or the pixels of a class."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitplug.hosting import valid_sizes


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
    """The logit of a class, before the softmax; by default of the class with the largest one."""

    label: int | None = None

    def __call__(self, model, images) -> Scores:
        logits_BC = model(images, mode='tensor')
        if not isinstance(logits_BC, Tensor) or logits_BC.ndim != 2:
            raise ValueError(f'{type(model).__name__}: its head gives no logits (images, classes) to choose one of')
        if self.label is not None and not 0 <= self.label < logits_BC.shape[1]:
            raise ValueError(f'label={self.label}: expected 0 to {logits_BC.shape[1] - 1}')
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
        valid = valid_sizes(images)
        sizes = [size] * len(images) if valid is None else valid.tolist()
        sized_logits = zip(logits_BCHW, sizes, strict=True)
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
