"""What a model does with an image: its attention maps, rollout, token norms and Grad-CAM, block by block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitplug.attention import GlobalLayout
from vitplug.compat import replace
from vitplug.lab.study.measures.attention import attention_rollout
from vitplug.lab.study.measures.grad_cam import GradCam
from vitplug.lab.study.measures.tokens import token_norms
from vitplug.lab.study.places import Place, dense_maps

from .tiles import Tiles, attention_tiles, image_tiles

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
        grad_cams: The Grad-CAMs of all blocks for an input ``(1, C, H, W)``; raises a ``ValueError`` without a score.
    """

    title: str
    name: str
    about: str
    source: str
    backbone: Any
    grad_cams: Callable[[Tensor], dict[int, GradCam]]


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
    inputs: list[Tensor]
    predictions: list[Prediction]
    truth: Prediction | None = None


def named_scores(scores: Tensor, classes: Sequence[str] | None) -> str:
    """The classes with the highest scores ``(classes,)`` in words; without names, by their numbers."""
    best = zip(*scores.topk(min(TOP, len(scores))), strict=True)
    return ', '.join(
        f'{classes[int(label)] if classes else f"class {int(label)}"}: {float(score):.1%}' for score, label in best
    )


def look(model: Model, inputs: Tensor, most_queries: int) -> Kinds:
    """The maps of a model for an input ``(1, C, H, W)``, with at most so many queries along a side."""
    looking = _Look(model.backbone, tuple(inputs.shape[-2:]), most_queries)
    with torch.no_grad():
        model.backbone.forward_intermediates(inputs, ('probs', 'maps', 'block'), reduce=looking)
    kinds = looking.kinds
    if len(kinds['probs']) < looking.num_layers:
        kinds.pop('rollout')
    # Blocks whose maps no plug changes have the same tiles twice.
    if all(layer in kinds['probs'] and tiles.equals(kinds['probs'][layer]) for layer, tiles in kinds['maps'].items()):
        kinds.pop('maps')
    return {kind: by_layer for kind, by_layer in kinds.items() if by_layer}


def grad_cam_tiles(model: Model, inputs: Tensor) -> tuple[dict[int, Tiles], str]:
    """Grad-CAM of each block that the score depends on, and what it explains, or why there is none."""
    try:
        cams = model.grad_cams(inputs)
    except ValueError as error:
        return {}, f'There is none: {error}.'
    if not cams:
        return {}, 'There is none: the score depends on the patch tokens of no block.'
    first = next(iter(cams.values()))
    tiles = {layer: image_tiles(cam.heat[0].cpu(), cam.pixels) for layer, cam in cams.items()}
    return tiles, f'Score: {first.targets[0]}, {float(first.scores[0]):.3g}.'


@dataclass(eq=False)
class _Look:
    """Takes maps and tokens of one image as they come, and keeps tiles alone."""

    backbone: Any
    size: tuple[int, int]
    most_queries: int
    kinds: Kinds = field(default_factory=lambda: dict(probs={}, maps={}, rollout={}, norms={}))
    rolled: Tensor | None = None

    def __post_init__(self) -> None:
        self.num_layers = len(self.backbone.plugged_blocks())
        self.places = [Place.of(self.backbone, layer, self.size) for layer in range(self.num_layers)]
        self.has_one_grid = len({grid for one in self.places for grid in (one.layout.hw, one.key_layout.hw)}) == 1

    def __call__(self, name: str, tensor: Tensor, site: Any) -> None:
        layer, place = site.index, self.places[site.index]
        if name == 'block':
            norms = token_norms(tensor)[0, place.layout.num_prefix :].unflatten(0, place.layout.hw)
            self.kinds['norms'][layer] = image_tiles(norms, place.pixels)
            return
        self.kinds[name][layer] = attention_tiles(tensor, place, self.most_queries)
        if name == 'probs' and self.has_one_grid:
            step = attention_rollout([dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]])
            self.rolled = step if self.rolled is None else step @ self.rolled
            layouts = [GlobalLayout(*one.hw, one.num_prefix) for one in (place.layout, place.key_layout)]
            whole = replace(place, layout=layouts[0], key_layout=layouts[1])  # windows are undone
            self.kinds['rollout'][layer] = attention_tiles(self.rolled[:, None, None], whole, self.most_queries)
