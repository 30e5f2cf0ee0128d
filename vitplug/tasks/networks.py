"""The parts of a model that an exported file can hold, from normalised images ``(B, C, H, W)`` to tensors.

What stands before (reading, resizing, normalising) and after (softmax, boxes, suppression) is not in a file.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

# A part as a function: normalised images to its outputs.
Run = Callable[[Tensor], tuple[Tensor, ...]]


def heads_of(part: nn.Module) -> list[nn.Module]:
    """The parts of a cascade, or the only one."""
    return list(part) if isinstance(part, nn.ModuleList) else [part]


def map_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Logits ``(B, classes, h, w)`` of the last decode head of a segmentor."""
    maps = model.extract_feat(images)
    first, *cascaded = heads_of(model.decode_head)
    logits = first(maps)
    for head in cascaded:
        logits = head(maps, logits)
    return logits


class Network(nn.Module):
    """A part of a model; called with images ``(B, C, H, W)``, it gives a tuple of tensors.

    Args:
        model: The whole model.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    @staticmethod
    def replace(model: nn.Module, run: Run) -> None:
        """Has a model run a file, a function of images, in place of the part."""
        raise NotImplementedError


class BackboneMaps(Network):
    """The backbone alone."""

    def __init__(self, model: nn.Module):
        super().__init__(model.backbone)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(images))

    @staticmethod
    def replace(model: nn.Module, run: Run) -> None:
        model.backbone.forward = run


class NeckMaps(Network):
    """Backbone and neck."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model.extract_feat(images))

    @staticmethod
    def replace(model: nn.Module, run: Run) -> None:
        model.extract_feat = run


class ClassScores(Network):
    """A whole classifier."""

    def forward(self, images: Tensor) -> tuple[Tensor]:
        return (self.model.head(self.model.extract_feat(images)),)

    @staticmethod
    def replace(model: nn.Module, run: Run) -> None:
        model.extract_feat = run
        model.head.forward = lambda outputs: outputs[0]


class PixelLogits(Network):
    """A whole segmentor."""

    def forward(self, images: Tensor) -> tuple[Tensor]:
        logits, size = map_logits(self.model, images), images.shape[-2:]
        return (F.interpolate(logits, size, mode='bilinear', align_corners=self.model.align_corners),)

    @staticmethod
    def replace(model: nn.Module, run: Run) -> None:
        head = heads_of(model.decode_head)[-1]
        model.encode_decode = lambda images, metas: head.predict_by_feat(run(images)[0], metas)
