"""The parts of a model that an exported file can hold, from normalised images ``(B, C, H, W)`` to tensors.

What stands before (reading, resizing, normalising) and after (softmax, boxes, suppression) is not in a file.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Network(nn.Module):
    """A part of a model: from images to a tuple of tensors.

    Args:
        model: The module whose weights belong to the part.
        outputs: Runs it.
    """

    def __init__(self, model: nn.Module, outputs: Callable[[nn.Module, Tensor], tuple[Tensor, ...]]):
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images ``(B, C, H, W)`` to the part's outputs."""
        return self.outputs(self.model, images)


@dataclass(frozen=True)
class Part:
    """A part of a model that a file can hold.

    Attributes:
        about: What its outputs are.
        network: Makes the part of a model.
    """

    about: str
    network: Callable[[nn.Module], Network]


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


def _sized_logits(model: nn.Module, images: Tensor) -> tuple[Tensor]:
    size = images.shape[-2:]
    return (F.interpolate(map_logits(model, images), size, mode='bilinear', align_corners=model.align_corners),)


def _map_classes(model: nn.Module, images: Tensor) -> tuple[Tensor]:
    """The most likely class of each pixel, ``(B, H, W)``."""
    (logits,) = _sized_logits(model, images)
    if logits.shape[1] == 1:  # the class is 1 where the sigmoid is above the head's threshold
        return ((logits[:, 0].sigmoid() > heads_of(model.decode_head)[-1].threshold).to(torch.int64),)
    return (logits.argmax(dim=1),)


BACKBONE = Part(
    'maps of the backbone',
    lambda model: Network(model.backbone, lambda backbone, images: tuple(backbone(images))),
)
FEATURES = Part(
    'maps of backbone and neck',
    lambda model: Network(model, lambda model, images: tuple(model.extract_feat(images))),
)
SCORES = Part(
    'scores of the classes, before the softmax',
    lambda model: Network(model, lambda model, images: (model.head(model.extract_feat(images)),)),
)
LOGITS = Part('logits of the classes at the size of the image', lambda model: Network(model, _sized_logits))
ARGMAX = Part('the most likely class of each pixel', lambda model: Network(model, _map_classes))
