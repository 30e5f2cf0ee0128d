"""The parts of a model that an exported file can hold, by task: how they are traced, and how a file takes their place.

A part goes from normalised images ``(B, C, H, W)`` to tensors. What stands before it (reading, resizing, normalising)
and after it (softmax, boxes, suppression, files of results) stays the library's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A part as a function, such as an exported file: images to its outputs.
Run = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Part:
    """A part of a model that a file can hold.

    Attributes:
        about: What its outputs are.
        network: Makes the part of a model; a module from images to a tuple of tensors.
        replace: Has a model run something else in place of the part; None where the library cannot go on from it.
        one_image: Whether it takes batches of one image alone.
    """

    about: str
    network: Callable[[nn.Module], nn.Module]
    replace: Callable[[nn.Module, Run], None] | None = None
    one_image: bool = False


def heads_of(part: nn.Module) -> list[nn.Module]:
    """The parts of a cascade, or the only one."""
    return list(part) if isinstance(part, nn.ModuleList) else [part]


class Network(nn.Module):
    """A part of a model: from images to a tuple of tensors.

    Args:
        model: The model. It is a sub-module, so that its weights belong to the part.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images ``(B, C, H, W)`` to the part's outputs."""
        raise NotImplementedError


class BackboneMaps(Network):
    """Outputs of the backbone alone."""

    def __init__(self, model: nn.Module):
        super().__init__(model.backbone)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(images))


class Features(Network):
    """Outputs of backbone and neck."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model.extract_feat(images))


class ClassScores(Network):
    """Scores ``(B, classes)`` before the softmax."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return (self.model.head(self.model.extract_feat(images)),)


class MapLogits(Network):
    """Logits ``(B, classes, H, W)`` at the size of the images."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.model.extract_feat(images)
        first, *cascaded = heads_of(self.model.decode_head)
        logits = first(maps)
        for head in cascaded:
            logits = head(maps, logits)
        return (F.interpolate(logits, images.shape[-2:], mode='bilinear', align_corners=self.model.align_corners),)


class MapClasses(MapLogits):
    """The most likely class of each pixel, ``(B, H, W)``."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        (logits,) = super().forward(images)
        # With one channel, the class is 1 where the sigmoid is above the head's threshold.
        if logits.shape[1] == 1:
            return ((logits[:, 0].sigmoid() > heads_of(self.model.decode_head)[-1].threshold).to(torch.int64),)
        return (logits.argmax(dim=1),)


def _replace_backbone(model: nn.Module, run: Run) -> None:
    model.backbone.forward = run


def _replace_features(model: nn.Module, run: Run) -> None:
    model.extract_feat = run


def _replace_scores(model: nn.Module, run: Run) -> None:
    model.extract_feat = run
    model.head.forward = lambda outputs: outputs[0]


def _replace_logits(model: nn.Module, run: Run) -> None:
    head = heads_of(model.decode_head)[-1]
    model.encode_decode = lambda images, metas: head.predict_by_feat(run(images)[0], metas)


BACKBONE = Part('maps of the backbone', BackboneMaps, _replace_backbone)
FEATURES = Part('maps of backbone and neck', Features, _replace_features)
SCORES = Part('scores of the classes, before the softmax', ClassScores, _replace_scores)
LOGITS = Part('logits of the classes at the size of the image', MapLogits, _replace_logits)
ARGMAX = Part('the most likely class of each pixel', MapClasses)
