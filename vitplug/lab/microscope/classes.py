"""Classes: the logits of a model of any library, and scores in words."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

TOP = 3


def logits_of(model: nn.Module, output: Any) -> Tensor | None:
    """Logits ``(B, classes)`` in the output of a classifier; None of another model."""
    logits = getattr(output, 'logits', output)
    # timm's models without a head give features of the same shape.
    has_no_head = getattr(model, 'num_classes', None) == 0
    return None if has_no_head or not isinstance(logits, Tensor) or logits.ndim != 2 else logits


def named_scores(scores: Tensor, classes: Sequence[str] | None) -> str:
    """The classes with the highest scores ``(classes,)`` in words; without names, by their numbers."""
    best = zip(*scores.topk(min(TOP, len(scores))), strict=True)
    return ', '.join(
        f'{classes[int(label)] if classes else f"class {int(label)}"}: {float(score):.1%}' for score, label in best
    )
