"""One run of a whole model on one image: its prediction, and the features that its backbone gave."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from mmengine.structures import BaseDataElement
from torch import Tensor

from .subject import Subject


@dataclass(frozen=True)
class Ran:
    """What a model gave for an image.

    Attributes:
        sample: Its prediction.
        features: The outputs of its backbone.
    """

    sample: BaseDataElement
    features: tuple[Tensor, ...]


@torch.no_grad()
def run_model(subject: Subject, batch: Mapping) -> Ran:
    """Runs a model on the batch of an image, as :meth:`collate` of its task makes it."""
    kept: list[tuple[Tensor, ...]] = []
    hook = subject.backbone.register_forward_hook(lambda module, args, outs: kept.append(_tensors(outs)))
    try:
        [sample] = subject.predictor.run(batch)
    finally:
        hook.remove()
    return Ran(sample, kept[-1])


def _tensors(outs) -> tuple[Tensor, ...]:
    """The tensors of a backbone's outputs, which may be tuples of tokens."""
    return (outs,) if isinstance(outs, Tensor) else tuple(tensor for out in outs for tensor in _tensors(out))
