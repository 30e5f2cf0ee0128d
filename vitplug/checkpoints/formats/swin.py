"""Swin, first and second version, of the original releases, timm, mmpretrain, mmdet and mmseg."""

import re
from functools import partial

from torch import Tensor

from .format import Format, State, table

NETWORK, NETWORK_V2 = 'Swin', 'Swin V2'

_NAMES = (
    *table('absolute_pos_embed, patch_embed.proj = patch_embed.projection, patch_embed.norm, norm = norm{last}'),
    *table(
        'norm1, norm2, norm3, attn = attn.w_msa, mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1',
        'layers.{}.blocks.{}.',
        'stages.{}.blocks.{}.',
    ),
)
_HEAD, _TIMM_HEAD = table('head = .head.fc'), table('head.fc = .head.fc')
# timm's first patch merging is in layers.1 (or missing), the original's in layers.0.
_IN_LAYER_0 = r'layers\.0\.downsample\.reduction\.weight'
_V2 = r'layers\.0\.blocks\.0\.attn\.logit_scale'
# Tensors of a patch merging that have an entry for every merged channel. In the second version, the norm comes after
# the reduction.
_MERGED, _MERGED_V2 = r'.*\.downsample\..*', r'.*\.downsample\.reduction\.weight'


def _last_stage(state: State) -> int:
    stages = (re.match(r'(?:backbone\.)?(?:layers|stages)\.(\d+)\.blocks\.', key) for key in state)
    return max((int(match.group(1)) for match in stages if match), default=-1)


def _as_tokens(ours: dict[str, Tensor], theirs: State) -> dict[str, Tensor]:
    """mmdet stores the absolute position table as an image."""
    positions = ours.get('backbone.absolute_pos_embed')
    if positions is not None and positions.ndim == 4:
        ours['backbone.absolute_pos_embed'] = positions.flatten(2).transpose(1, 2)
    return ours


def _channels_first(merged: str, ours: dict[str, Tensor], theirs: State) -> dict[str, Tensor]:
    """Columns of a 2x2 patch from (pixel, channel), pixels down first, to (channel, pixel), pixels across first."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (2, 2, -1)).transpose(-3, -2).movedim(-1, -3).flatten(-3)

    return {key: move(value) if re.fullmatch(merged, key) else value for key, value in ours.items()}


def _pixels_first(merged: str, theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`_channels_first`."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (-1, 2, 2)).movedim(-3, -1).transpose(-3, -2).flatten(-3)

    return {key: move(value) if re.fullmatch(merged, key) else value for key, value in theirs.items()}


_FIRST = dict(last=_last_stage, finish=partial(_channels_first, _MERGED), restore=partial(_pixels_first, _MERGED))
_SECOND = dict(
    last=_last_stage, finish=partial(_channels_first, _MERGED_V2), restore=partial(_pixels_first, _MERGED_V2)
)
TIMM_SWIN = Format(
    'timm Swin',
    NETWORK,
    # A Swin of one stage has no patch merging.
    (r'layers\.(?:1\.downsample\.reduction\.weight|0\.blocks\.0\.attn\.relative_position_bias_table)',),
    (*table('layers.{+1}.downsample = stages.{}.downsample'), *_NAMES, *_TIMM_HEAD),
    **_FIRST,
)
ORIGINAL_SWIN = Format(
    'original Swin',
    NETWORK,
    (_IN_LAYER_0,),
    (*table('layers.{}.downsample = stages.{}.downsample'), *_NAMES, *_HEAD),
    **_FIRST,
)
TIMM_SWIN_V2 = Format(
    'timm Swin V2',
    NETWORK_V2,
    (_V2,),
    (*table('layers.{}.downsample = stages.{}.downsample'), *_NAMES, *_TIMM_HEAD),
    **_SECOND,
)
ORIGINAL_SWIN_V2 = Format(
    'original Swin V2',
    NETWORK_V2,
    (_V2, _IN_LAYER_0),
    (*table('layers.{}.downsample = stages.{+1}.downsample'), *_NAMES, *_HEAD),
    **_SECOND,
)
HF_SWIN = Format(
    'Hugging Face Swin',
    NETWORK,
    (r'layers\.\d+\.blocks\.\d+\.attention\.self\.query\.weight',),
    why="its names and its order of patch merging are not converted; load timm's or the original file of this network",
)
# Early files have `norm` for the last norm, without a number.
_MM = dict(rules=table('norm = norm{last}'), last=_last_stage, finish=_as_tokens)
MM_SWIN = Format(
    'OpenMMLab Swin', NETWORK, (r'stages\.\d+\.blocks\.\d+\.attn\.w_msa\.relative_position_bias_table',), **_MM
)
MM_SWIN_V2 = Format('OpenMMLab Swin V2', NETWORK_V2, (r'stages\.\d+\.blocks\.\d+\.attn\.w_msa\.logit_scale',), **_MM)
