"""BViT's code, whose host has a convolution of 7 x 7 before patches of 16 x 16, and so 7 x 7 tokens at 224 x 224."""

import re
from dataclasses import dataclass
from math import isqrt

import torch.nn.functional as F
from torch import Tensor

from .format import Released, State, below
from .vit import NETWORK

_STEM, _PATCHES, _TABLE = 'conv', 'to_patch_embedding.1', 'pos_embedding'
_EMBED = 'patch_embed.projection'
_REPLACED = (*(f'{part}.{name}' for part in (_STEM, _PATCHES) for name in ('weight', 'bias')), _TABLE)
STEM_SHAPE, STEM_STRIDE = (3, 3, 7, 7), 2
_BLOCK = [
    ('0.norm', 'ln1'),
    ('0.fn.to_qkv', 'attn.qkv'),
    ('0.fn.to_out.0', 'attn.proj'),
    ('1.norm', 'ln2'),
    ('1.fn.net.0', 'ffn.layers.0.0'),
    ('1.fn.net.3', 'ffn.layers.1'),
]


@dataclass(frozen=True)
class BViTFormat(Released):
    """BViT, for a host with ``patch_size=32, patch_cfg=dict(kernel_size=37, padding=3), qkv_bias=False``.

    Nothing lies between the first convolution, of stride 2, and the patches, so both are one convolution.
    """

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        used = _used_positions(state)
        merged = {key: value for key, value in state.items() if key not in _REPLACED}
        merged |= dict(zip((f'{_EMBED}.weight', f'{_EMBED}.bias'), _merged_stem(state), strict=True))
        merged[_TABLE] = state[_TABLE][:, :used]
        return super().to_vitplug(merged)

    def notes(self, state: State) -> list[str]:
        used, stored = _used_positions(state), state[_TABLE].shape[1]
        return [
            f'{_STEM} and {_PATCHES} are one convolution, {_EMBED}',
            f'left out {stored - used} of {stored} positions in {_TABLE}, which the code never reads',
        ]


def _merged_stem(state: State) -> tuple[Tensor, Tensor]:
    """Weight ``(D, 3, k, k)`` and bias ``(D,)`` of the two convolutions in a row."""
    stem, patches = state[f'{_STEM}.weight'], state[f'{_PATCHES}.weight']
    side = isqrt(patches.shape[1] // 3)
    if tuple(stem.shape) != STEM_SHAPE or 3 * side * side != patches.shape[1]:
        raise ValueError(
            f'BViT: {_STEM}.weight has shape {tuple(stem.shape)} and {_PATCHES}.weight {tuple(patches.shape)}: '
            f'expected {STEM_SHAPE} and (D, 3 x side x side)'
        )
    dtype = patches.dtype
    stem, patches = stem.double(), patches.double().unflatten(1, (side, side, 3)).movedim(-1, 1)
    weight = F.conv_transpose2d(patches, stem, stride=STEM_STRIDE)
    bias = state[f'{_PATCHES}.bias'].double() + patches.sum(dim=(2, 3)) @ state[f'{_STEM}.bias'].double()
    return weight.to(dtype), bias.to(dtype)


def _used_positions(state: State) -> int:
    """Positions that the code reads: it stores one for each patch of the image, and sees patches of half the image."""
    entries = state[_TABLE].shape[1]
    side = isqrt(entries - 1)
    if side * side != entries - 1 or side % STEM_STRIDE:
        raise ValueError(f'BViT: {_TABLE} has {entries} entries: expected one more than an even square')
    return 1 + (side // STEM_STRIDE) ** 2


BVIT = BViTFormat(
    'BViT',
    NETWORK,
    (r'transformer\.layers\.\d+\.0\.fn\.to_qkv\.weight', *map(re.escape, _REPLACED)),
    [
        (_EMBED, f'backbone.{_EMBED}'),
        ('cls_token', 'backbone.cls_token'),
        (_TABLE, 'backbone.pos_embed'),
        *below('transformer.layers.{}', 'backbone.layers.{}', _BLOCK),
        ('mlp_head.0', 'backbone.ln1'),
        ('mlp_head.1', 'head.layers.head'),
    ],
)
