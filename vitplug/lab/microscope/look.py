"""What a model under the microscope is, says about an image, and attends to in it, block by block."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitplug.lab.study.measure import as_picture
from vitplug.lab.study.places import Place

from .tiles import Tiles, attention_tiles

# Classes with the highest scores that are named.
TOP = 3
#: Tiles by kind of map and block.
Kinds = dict[str, dict[int, Tiles]]


@dataclass(frozen=True, eq=False)
class Model:
    """A model under the microscope, of whatever library.

    Attributes:
        title: ``'Model'`` or ``'Baseline'``.
        name: A short name.
        about: Host and plugs, in one line.
        source: Where the model and its weights come from.
        backbone: What records intermediates, a :class:`~vitplug.hosting.PluggedModel`.
    """

    title: str
    name: str
    about: str
    source: str
    backbone: Any


@dataclass(frozen=True, eq=False)
class Prediction:
    """A prediction or a ground truth.

    Attributes:
        text: In words; may be empty beside a picture.
        picture: Drawn, ``(height, width, 3)`` of RGB; None if words say it all.
    """

    text: str
    picture: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """An image, and what the models get of it and say about it.

    Attributes:
        name: Name of the image.
        picture: The pixels before normalisation, padded as the input is, ``(H, W, 3)`` of RGB.
        inputs: Of each model ``(1, C, H, W)``.
        predictions: Of each model.
        truth: What the data of the config say; None if they do not list the image.
    """

    name: str
    picture: np.ndarray
    inputs: Sequence[Tensor]
    predictions: Sequence[Prediction]
    truth: Prediction | None = None

    @classmethod
    def of(cls, name: str, pixels_CHW: Tensor, inputs: Sequence[Tensor], *said: Any) -> 'View':
        """Of pixels, red first, which are padded as the inputs are; the name says what it shows of other channels."""
        picture, note = as_picture(pixels_CHW, tuple(inputs[-1].shape[-2:]))
        return cls(f'{name}, {note}' if note else name, picture, inputs, *said)


def named_scores(scores: Tensor, classes: Sequence[str] | None) -> str:
    """The classes with the highest scores ``(classes,)`` in words; without names, by their numbers."""
    best = zip(*scores.topk(min(TOP, len(scores))), strict=True)
    return ', '.join(
        f'{classes[int(label)] if classes else f"class {int(label)}"}: {float(score):.1%}' for score, label in best
    )


def look(model: Model, inputs: Tensor, most_queries: int) -> Kinds:
    """The maps of a model for an input ``(1, C, H, W)``, with at most so many queries along a side."""
    kinds: Kinds = dict(probs={}, maps={})

    def keep(name: str, tensor: Tensor, site: Any) -> None:
        place = Place.of(model.backbone, site.index, tuple(inputs.shape[-2:]))
        kinds[name][site.index] = attention_tiles(tensor, place, most_queries)

    with torch.no_grad():
        model.backbone.forward_intermediates(inputs, tuple(kinds), reduce=keep)
    # Blocks whose maps no plug changes have the same tiles twice.
    if all(layer in kinds['probs'] and tiles.equals(kinds['probs'][layer]) for layer, tiles in kinds['maps'].items()):
        kinds.pop('maps')
    return kinds
