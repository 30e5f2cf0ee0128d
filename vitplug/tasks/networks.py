"""The parts of a model that an exported file can hold, from normalised images ``(B, C, H, W)`` to tensors.

What stands before (reading, resizing, normalising) and after (softmax, boxes, suppression) is not in a file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A part as a function: normalised images to its outputs.
Run = Callable[[Tensor], tuple[Tensor, ...]]


class Network(nn.Module):
    """A part of a model: from images ``(B, C, H, W)`` to a tuple of tensors.

    Args:
        model: The module whose weights belong to the part.
        outputs: Runs it.
    """

    def __init__(self, model: nn.Module, outputs: Callable[[nn.Module, Tensor], Sequence[Tensor]]):
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.outputs(self.model, images))


@dataclass(frozen=True)
class Part:
    """A part of a model that a file can hold.

    Attributes:
        about: What its outputs are.
        outputs: Runs the part.
        replace: Has a model run a file, a function of images, in place of the part; None where the library cannot go
            on from it.
        of_backbone: True if the part is the backbone, which ``outputs`` gets in place of the model.
    """

    about: str
    outputs: Callable[[nn.Module, Tensor], Sequence[Tensor]]
    replace: Callable[[nn.Module, Run], None] | None = None
    of_backbone: bool = False

    def network(self, model: nn.Module) -> Network:
        """The part of a model."""
        return Network(model.backbone if self.of_backbone else model, self.outputs)


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


BACKBONE = Part('maps of the backbone', lambda backbone, images: backbone(images), _replace_backbone, of_backbone=True)
FEATURES = Part('maps of backbone and neck', lambda model, images: model.extract_feat(images), _replace_features)
SCORES = Part(
    'scores of the classes, before the softmax',
    lambda model, images: [model.head(model.extract_feat(images))],
    _replace_scores,
)
LOGITS = Part('logits of the classes at the size of the image', _sized_logits, _replace_logits)
ARGMAX = Part('the most likely class of each pixel', _map_classes)
