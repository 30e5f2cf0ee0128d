"""The loss on similar attention maps of Refiner's official code; the paper does not mention it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor

from vitplug.attention import fused_attention
from vitplug.registry import MODELS


def similarity_of_maps(maps: Sequence[Tensor]) -> Tensor:
    """Similarity of the attention maps ``(B, W, H, N, N)`` of successive blocks, from -1 to 1.

    For a pair of tokens, the entries of all heads are a vector of length H. The result is the cosine similarity of
    these vectors in two successive blocks, averaged over blocks, images, windows and pairs of tokens.
    """
    return torch.stack([F.cosine_similarity(a, b, dim=2).mean() for a, b in pairwise(maps)]).mean()


@dataclass(frozen=True)
class Diversity:
    """What the loss is multiplied by, and the blocks whose maps are compared; ValueError if one of both is invalid."""

    weight: float
    layers: Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.weight, int | float):
            raise ValueError(f'diversity.weight={self.weight!r}: expected a number')
        layers = list(self.layers)
        if len(layers) < 2 or layers != sorted(set(layers)) or layers[0] < 0:
            raise ValueError(f'diversity.layers={layers!r}: expected two or more block indices in ascending order')


@MODELS.register_module()
class DiverseClassifier(ImageClassifier):
    """A classifier with an additional loss on similar attention maps of successive blocks::

        loss = head's loss + weight * mean_l cos(maps of block l, maps of the next block in layers)

    Refiner's official code (``cos_reg_component: 12``, loss/cross_entropy.py) uses 0.1 times the mean over 12 pairs of
    consecutive blocks. In its networks the second block of each pair reuses the map of the first, so every other
    cosine is 1, and only 6 of the 12 have a gradient. This is ``weight=0.05, layers=[0, 2, 4, 6, 8, 10, 12]``.

    The loss needs explicit maps, so attention is not fused in training.

    Args:
        diversity: ``dict(weight=..., layers=[...])`` with at least two blocks; None disables the loss.
        settings: Arguments of mmpretrain's ``ImageClassifier``; the backbone must be one of vitplug's.

    Raises:
        TypeError: If ``diversity`` lacks a key or has another.
        ValueError: If one of its values is invalid; in the first forward, if a block has no maps of the others' shape.
    """

    def __init__(self, *, diversity: Mapping | None, **settings):
        super().__init__(**settings)
        self.diversity = None if diversity is None else Diversity(**diversity)

    def loss(
        self, inputs: Tensor, data_samples: Sequence[DataSample], mix: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """The head's losses and the loss on similar maps for images ``(B, C, H, W)``.

        ``mix`` changes the patch tokens ``(B, h, w, D)`` before the first block; the head gets it as well.
        """
        settings, further = dict(mix=mix) if mix else {}, {}
        if self.diversity is None:
            feats = self.backbone(inputs, **settings)
        else:
            with fused_attention(False):
                layers = self.diversity.layers
                feats, recorded = self.backbone.forward_intermediates(inputs, ('maps',), layers, **settings)
            maps = recorded.get('maps', {})
            shapes = {layer: tuple(of_layer.shape) for layer, of_layer in maps.items()}
            if len(maps) < len(layers) or len(set(shapes.values())) > 1:
                raise ValueError(f'diversity.layers={layers!r}: expected maps of one shape from each, but got {shapes}')
            similarity = similarity_of_maps([maps[layer] for layer in layers])
            further['loss_diversity'] = self.diversity.weight * similarity
        feats = self.neck(feats) if self.with_neck else feats
        return self.head.loss(feats, data_samples, **settings) | further
