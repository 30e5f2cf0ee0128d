"""Refined-ViT of Refiner's code, which fits ``scheme='official'`` of the plug."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from .format import Released, State, below
from .vit import NAMES, NETWORK, QKV

_MAP = [
    ('DLA.conv_exp.weight', 'expand'),
    ('DLA.bn1', 'expand_bn'),
    ('DLA.depth_sep_conv.weight', 'local'),
    ('DLA.bn2', 'local_bn'),
    ('DLA.conv_pro.weight', 'reduce'),
    ('DLA.bn3', 'reduce_bn'),
    ('adapt_bn', 'adapt_bn'),
]
_STEM = [pair for i in range(3) for pair in ((f'conv{i + 1}', f'{i}.conv'), (f'bn{i + 1}', f'{i}.bn'))]
_PLUG = 'backbone.layers.{}.plugs.refiner'
_SCALE = 'mlp_end.scale'


@dataclass(frozen=True)
class RefinedViT(Released):
    """Refined-ViT, whose every second block refines and uses the map of the block before.

    The first code has no scale of the MLPs' channels, which later code has: the scale is then 1. The plug also keeps
    the number of tokens that the batch norms' statistics belong to.
    """

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(state)
        blocks = _blocks(state, 'norm1')
        refined = _blocks(state, 'attn.adapt_bn')
        if refined != blocks[1::2] or len(blocks) % 2:
            raise ValueError(
                f'{self.name}: blocks {refined} of {len(blocks)} refine a map: expected every second one, from block 1 '
                'on, as in Refined-ViT-S, M and L'
            )
        for index in refined:
            ours[f'{_PLUG.format(index)}.map.reference_tokens'] = torch.tensor([state['pos_embed'].shape[1]])
        for index in _unscaled(state):
            ours[f'{_PLUG.format(index)}.{_SCALE}'] = torch.ones_like(state[f'blocks.{index}.norm2.weight'])
        return ours

    def notes(self, state: State) -> list[str]:
        tokens = state['pos_embed'].shape[1]
        notes = [f'added {len(_blocks(state, "attn.adapt_bn"))} reference_tokens, the {tokens} tokens of pos_embed']
        unscaled = len(_unscaled(state))
        return [*notes, f'added {unscaled} scales of 1, which the first code does not have'] if unscaled else notes


def _blocks(state: State, part: str) -> list[int]:
    """The blocks that have a part."""
    matches = (re.fullmatch(rf'blocks\.(\d+)\.{re.escape(part)}\.weight', key) for key in state)
    return sorted(int(match[1]) for match in matches if match)


def _unscaled(state: State) -> list[int]:
    return [index for index in _blocks(state, 'norm2') if f'blocks.{index}.mlp.scale_channel' not in state]


REFINED_VIT = RefinedViT(
    'Refined-ViT',
    NETWORK,
    (QKV, r'blocks\.\d+\.attn\.adapt_bn\.weight', 'pos_embed'),
    [
        *below('patch_embed', 'backbone.patch_embed.stem', _STEM),
        *below('blocks.{}.attn', f'{_PLUG}.map', _MAP),
        ('blocks.{}.mlp.scale_channel', f'{_PLUG}.{_SCALE}'),
        ('aux_head', 'head.aux_head'),
        *NAMES,
    ],
)
