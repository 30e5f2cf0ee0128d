"""The loss on attention maps that are alike, which Refiner's code has and its paper does not mention."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor

from vitplug.attention import fused_attention
from vitplug.registry import MODELS


def similarity_of_maps(maps: Sequence[Tensor]) -> Tensor:
    """How alike attention maps ``(B, W, H, N, N)`` of blocks are to those of the next, from -1 to 1.

    The mean over blocks, images and pairs of tokens of the cosine of the angle between the values that all heads have
    for a pair of tokens.
    """
    return torch.stack([F.cosine_similarity(a, b, dim=2).mean() for a, b in pairwise(maps)]).mean()


@MODELS.register_module()
class DiverseClassifier(ImageClassifier):
    """A classifier whose loss grows as attention maps of its blocks become alike::

        loss = head's loss + weight * mean_l cos(maps of block l, maps of the next block in layers)

    Refiner's official code (``cos_reg_component: 12``, loss/cross_entropy.py) takes 0.1 times the mean over 12 pairs of
    consecutive blocks. In its networks the second block of each pair hands on the map of the first, so every other
    cosine is 1: of the 12, 6 have a gradient, which is ``weight=0.05, layers=[0, 2, 4, 6, 8, 10, 12]`` here.

    Maps are formed for it, so attention is not fused in training.

    Args:
        diversity: ``dict(weight=..., layers=[...])``, at least two blocks; None for no such loss.
        settings: Arguments of mmpretrain's ``ImageClassifier``; the backbone is vitplug's.

    Raises:
        ValueError: If ``diversity`` is something else, or a block is not in the backbone.
    """

    def __init__(self, *, diversity: Mapping | None, **settings):
        super().__init__(**settings)
        self.diversity_weight, self.diversity_layers = _read_diversity(diversity)
        if self.diversity_layers and max(self.diversity_layers) >= len(self.backbone.plugged_blocks()):
            count = len(self.backbone.plugged_blocks())
            raise ValueError(
                f'diversity.layers={list(self.diversity_layers)}: the backbone has blocks 0 to {count - 1}'
            )

    def run_backbone(
        self, inputs: Tensor, mix: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Features of images ``(B, C, H, W)``, and the loss of maps that are alike where there is one.

        Args:
            inputs: The images.
            mix: Changes the patch tokens ``(B, h, w, D)`` before the first block.
        """
        settings = dict(mix=mix) if mix else {}
        if not self.diversity_layers:
            return self.backbone(inputs, **settings), {}
        with fused_attention(False):
            feats, found = self.backbone.forward_intermediates(inputs, ('maps',), self.diversity_layers, **settings)
        maps = [found['maps'][layer] for layer in self.diversity_layers]
        return feats, dict(loss_diversity=self.diversity_weight * similarity_of_maps(maps))

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """The head's loss and that of maps which are alike, of images ``(B, C, H, W)``."""
        feats, diversity = self.run_backbone(inputs)
        feats = self.neck(feats) if self.with_neck else feats
        return dict(self.head.loss(feats, data_samples), **diversity)


def _read_diversity(diversity: Mapping | None) -> tuple[float, tuple[int, ...]]:
    if diversity is None:
        return 0.0, ()
    if not isinstance(diversity, Mapping) or set(diversity) != {'weight', 'layers'}:
        raise ValueError(f'diversity={diversity!r}: expected dict(weight=..., layers=[...]) or None')
    layers = diversity['layers']
    indices = isinstance(layers, list | tuple) and all(type(i) is int and i >= 0 for i in layers)
    if not indices or len(layers) < 2 or list(layers) != sorted(set(layers)):
        raise ValueError(f'diversity.layers={layers!r}: expected two or more block indices in growing order')
    if isinstance(diversity['weight'], bool) or not isinstance(diversity['weight'], int | float):
        raise ValueError(f'diversity.weight={diversity["weight"]!r}: expected a number')
    return float(diversity['weight']), tuple(layers)
