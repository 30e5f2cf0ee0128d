"""The parts of a model that an exported file can hold, from normalised images ``(B, C, H, W)`` to tensors.

What stands before (reading, resizing, normalising) and after (softmax, boxes, suppression) is not in a file.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

# Normalised images to the outputs of a part.
Run = Callable[[Tensor], tuple[Tensor, ...]]


def heads_of(part: nn.Module) -> list[nn.Module]:
    """The parts of a cascade, or the only one."""
    return list(part) if isinstance(part, nn.ModuleList) else [part]


def run_head(model: nn.Module, name: str, maps: Sequence[Tensor]) -> Any:
    """The outputs of a head, or the first of a cascade, of maps ``(B, D, h, w)``; ValueError if it needs more."""
    try:
        return heads_of(getattr(model, name))[0](maps)
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f'{type(model).__name__}: its {name} does not run on maps alone ({error}): use the backbone in a model '
            "whose head does, such as mmdet's RetinaNet and mmseg's UPerHead"
        ) from error


def map_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Logits ``(B, classes, h, w)`` of the last decode head of a segmentor."""
    maps = model.extract_feat(images)
    logits = run_head(model, 'decode_head', maps)
    for head in heads_of(model.decode_head)[1:]:
        logits = head(maps, logits)
    return logits


class Network(nn.Module):
    """A part of a model as a module: called with images ``(B, C, H, W)``, it gives a tuple of tensors."""

    def __init__(self, model: nn.Module, run: Callable[[nn.Module, Tensor], tuple[Tensor, ...]]):
        super().__init__()
        self.model, self.run = model, run

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return self.run(self.model, images)


class Part(NamedTuple):
    """What an exported file can hold of a model, and how the model runs the file.

    Attributes:
        run: Runs the part.
        replace: Has a model run a file, a function of images, in place of the part.
        inside: The module of the model that ``run`` gets; by default the model itself.
    """

    run: Callable[[nn.Module, Tensor], tuple[Tensor, ...]]
    replace: Callable[[nn.Module, Run], None]
    inside: str = ''

    def of(self, model: nn.Module) -> Network:
        """The part of a model."""
        return Network(model.get_submodule(self.inside), self.run)


def _replace_scores(model: nn.Module, run: Run) -> None:
    model.extract_feat = run
    model.head.forward = lambda outputs: outputs[0]


def _logits_of_pixels(model: nn.Module, images: Tensor) -> tuple[Tensor]:
    logits, size = map_logits(model, images), images.shape[-2:]
    return (F.interpolate(logits, size, mode='bilinear', align_corners=model.align_corners),)


def _replace_logits(model: nn.Module, run: Run) -> None:
    head = heads_of(model.decode_head)[-1]
    model.encode_decode = lambda images, metas: head.predict_by_feat(run(images)[0], metas)


BACKBONE = Part(
    run=lambda backbone, images: tuple(backbone(images)),
    replace=lambda model, run: setattr(model.backbone, 'forward', run),
    inside='backbone',
)
#: Backbone and neck.
FEATURES = Part(
    run=lambda model, images: tuple(model.extract_feat(images)),
    replace=lambda model, run: setattr(model, 'extract_feat', run),
)
#: A whole classifier.
SCORES = Part(run=lambda model, images: (model.head(model.extract_feat(images)),), replace=_replace_scores)
#: A whole segmentor.
LOGITS = Part(run=_logits_of_pixels, replace=_replace_logits)
