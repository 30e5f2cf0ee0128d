"""MViTv2 of its authors, timm and mmpretrain."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from .format import Format, Names, OpenMMLab, Released, State, below, check_stages, rename

NETWORK = 'MViT'

_OUTSIDE = [
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('cls_token', 'backbone.cls_token'),
    ('pos_embed', 'backbone.pos_embed'),
]
_PARTS = (
    'norm1',
    'norm2',
    'attn.qkv',
    'attn.proj',
    *(f'attn.{kind}_{name}' for name in 'qkv' for kind in ('pool', 'norm')),
    'attn.rel_pos_h',
    'attn.rel_pos_w',
    'mlp.fc1',
    'mlp.fc2',
)
_BLOCK = [(part, part) for part in _PARTS]
#: The key by which MViT is recognised, by the names of its authors and of mmpretrain.
POOL = r'blocks\.\d+\.attn\.pool_k\.weight'


@dataclass(frozen=True)
class ReleasedMViT(Released):
    """MViTv2 of its authors, whose blocks mmpretrain names alike."""

    def all_names(self, state: State) -> Names:
        blocks = below('blocks.{}', 'backbone.blocks.{}', [*_BLOCK, ('proj', 'proj')])
        return (*_OUTSIDE, *blocks, ('norm', _last_norm(state)), ('head.projection', 'head.fc'), *self.names)


@dataclass(frozen=True)
class TimmMViT(Format):
    """MViTv2 of timm, which counts blocks by stages and names a projection after the branch that it goes around."""

    def all_names(self, state: State) -> Names:
        counts, branch = _count_blocks(state)
        blocks = below('blocks.{}', 'backbone.blocks.{}', [*_BLOCK, (f'shortcut_proj_{branch}', 'proj')])
        return (*_OUTSIDE, *blocks, ('norm', f'backbone.norm{len(counts) - 1}'), ('head.fc', 'head.fc'))

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        counts, names = _count_blocks(state)[0], self.all_names(state)
        through = {key: _count_through(key, counts) for key in state}
        return {rename(through[key], names) or f'backbone.{through[key]}': value for key, value in state.items()}

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        counts, _ = _count_blocks(state)
        return {_count_by_stages(key, counts): value for key, value in super().from_vitplug(state).items()}


def _count_through(key: str, counts: Sequence[int]) -> str:
    """The key with the block counted through all stages, which have so many blocks each."""
    match = re.match(r'stages\.(\d+)\.blocks\.(\d+)\.', key)
    return f'blocks.{sum(counts[: int(match[1])]) + int(match[2])}.{key[match.end() :]}' if match else key


def _count_by_stages(key: str, counts: Sequence[int]) -> str:
    """The inverse of :func:`_count_through`."""
    match = re.match(r'blocks\.(\d+)\.', key)
    if not match:
        return key
    stage, block = 0, int(match[1])
    while block >= counts[stage]:
        stage, block = stage + 1, block - counts[stage]
    return f'stages.{stage}.blocks.{block}.{key[match.end() :]}'


def _last_norm(state: State) -> str:
    """vitplug's name of the norm after the last stage, whose width is another than that of the stage before."""
    widened = [key for key in state if re.fullmatch(r'blocks\.\d+\.proj\.weight', key)]
    return f'backbone.norm{len(widened)}'


def _count_blocks(state: State) -> tuple[list[int], str]:
    """The number of blocks in each stage, and the branch that changes the width, ``'attn'`` or ``'mlp'``."""
    stage_and_block = {match.groups() for key in state if (match := re.match(r'stages\.(\d+)\.blocks\.(\d+)\.', key))}
    if stage_and_block:
        stages = [int(stage) for stage, _ in stage_and_block]
        in_mlp = any('.shortcut_proj_mlp.' in key for key in state)
        counts = [stages.count(stage) for stage in range(check_stages(max(stages) + 1))]
        return counts, 'mlp' if in_mlp else 'attn'
    blocks = {int(match[1]) for key in state if (match := re.match(r'backbone\.blocks\.(\d+)\.', key))}
    wider = [index for index in sorted(blocks) if f'backbone.blocks.{index}.proj.weight' in state]
    in_attn = not wider or _widens_in_attention(state, f'backbone.blocks.{wider[0]}')
    starts = [0, *(index if in_attn else index + 1 for index in wider), len(blocks)]
    return [end - start for start, end in pairwise(starts)], 'attn' if in_attn else 'mlp'


def _widens_in_attention(state: State, block: str) -> bool:
    qkv = state.get(f'{block}.attn.qkv.weight')
    return qkv is None or len(qkv) == 3 * len(state[f'{block}.proj.weight'])


MVIT = ReleasedMViT('original MViT', NETWORK, (POOL, r'patch_embed\.proj\.weight'))
TIMM_MVIT = TimmMViT('timm MViT', NETWORK, (r'stages\.\d+\.blocks\.\d+\.attn\.pool_k\.weight',))
MM_MVIT = OpenMMLab('OpenMMLab MViT', NETWORK, (POOL, r'patch_embed\.projection\.weight'))
