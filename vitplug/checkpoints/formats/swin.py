"""Swin, first and second version, of the original releases, timm, mmpretrain, mmdet and mmseg."""

import re
from dataclasses import dataclass

from torch import Tensor

from .format import Format, Names, OpenMMLab, Refused, State, below, check_stages

NETWORK, NETWORK_V2 = 'Swin', 'Swin V2'

_BLOCK = [
    ('norm1', 'norm1'),
    ('norm2', 'norm2'),
    ('attn', 'attn.w_msa'),
    ('mlp.fc1', 'ffn.layers.0.0'),
    ('mlp.fc2', 'ffn.layers.1'),
]
_NAMES = [
    ('absolute_pos_embed', 'backbone.absolute_pos_embed'),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('patch_embed.norm', 'backbone.patch_embed.norm'),
    *below('layers.{}.blocks.{}', 'backbone.stages.{}.blocks.{}', [*_BLOCK, ('norm3', 'norm3')]),
]
# timm's first patch merging is in layers.1 (or missing), the original's in layers.0.
_IN_LAYER_0 = r'layers\.0\.downsample\.reduction\.weight'
_V2 = r'layers\.0\.blocks\.0\.attn\.logit_scale'


@dataclass(frozen=True)
class OpenMMLabSwin(OpenMMLab):
    """Swin of mmpretrain, mmdet and mmseg.

    mmdet stores the absolute position table as an image. Early files have ``norm`` for the last norm, without a number.
    """

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(state)
        last = f'backbone.norm{_num_stages(state) - 1}.'
        ours = {key.replace('backbone.norm.', last): value for key, value in ours.items()}
        table = ours.get('backbone.absolute_pos_embed')
        if table is not None and table.ndim == 4:
            ours['backbone.absolute_pos_embed'] = table.flatten(2).transpose(1, 2)
        return ours


@dataclass(frozen=True)
class ReleasedSwin(Format):
    """Swin of the original release and of timm, with another order of patch merging than mmcv.

    Args:
        merging_stage: 0 if the patch merging between stages i and i + 1 belongs to stage i, 1 if to i + 1.
        our_merging_stage: The same in vitplug's keys.
        merged: Regular expression of the tensors of a patch merging that have an entry for every merged channel.
    """

    merging_stage: int = 0
    our_merging_stage: int = 0
    merged: str = r'.*\.downsample\..*'

    def all_names(self, state: State) -> Names:
        num_stages = _num_stages(state)
        merging = [
            (f'layers.{i + self.merging_stage}.downsample', f'backbone.stages.{i + self.our_merging_stage}.downsample')
            for i in range(num_stages - 1)
        ]
        return (*merging, ('norm', f'backbone.norm{num_stages - 1}'), *self.names)

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(state)
        return {key: _channels_first(value) if re.fullmatch(self.merged, key) else value for key, value in ours.items()}

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        theirs = super().from_vitplug(state)
        return {key: _pixels_first(value) if re.fullmatch(self.merged, key) else value for key, value in theirs.items()}


def _channels_first(merged: Tensor) -> Tensor:
    """Columns of a 2x2 patch from (pixel, channel), pixels down first, to (channel, pixel), pixels across first."""
    return merged.unflatten(-1, (2, 2, -1)).transpose(-3, -2).movedim(-1, -3).flatten(-3)


def _pixels_first(merged: Tensor) -> Tensor:
    """The inverse of :func:`_channels_first`."""
    return merged.unflatten(-1, (-1, 2, 2)).movedim(-3, -1).transpose(-3, -2).flatten(-3)


def _num_stages(state: State) -> int:
    stages = (re.match(r'(?:backbone\.)?(?:layers|stages)\.(\d+)\.blocks\.', key) for key in state)
    return check_stages(max((int(match.group(1)) + 1 for match in stages if match), default=0))


# In the second version, the norm of a patch merging comes after the reduction.
_SECOND = dict(our_merging_stage=1, merged=r'.*\.downsample\.reduction\.weight')

TIMM_SWIN = ReleasedSwin(
    'timm Swin',
    NETWORK,
    # A Swin of one stage has no patch merging.
    (r'layers\.(?:1\.downsample\.reduction\.weight|0\.blocks\.0\.attn\.relative_position_bias_table)',),
    [*_NAMES, ('head.fc', 'head.fc')],
    merging_stage=1,
)
ORIGINAL_SWIN = ReleasedSwin('original Swin', NETWORK, (_IN_LAYER_0,), [*_NAMES, ('head', 'head.fc')])
TIMM_SWIN_V2 = ReleasedSwin(
    'timm Swin V2', NETWORK_V2, (_V2,), [*_NAMES, ('head.fc', 'head.fc')], merging_stage=1, **_SECOND
)
ORIGINAL_SWIN_V2 = ReleasedSwin(
    'original Swin V2', NETWORK_V2, (_V2, _IN_LAYER_0), [*_NAMES, ('head', 'head.fc')], **_SECOND
)
HF_SWIN = Refused(
    'Hugging Face Swin',
    NETWORK,
    (r'layers\.\d+\.blocks\.\d+\.attention\.self\.query\.weight',),
    why="its names and its order of patch merging are not converted; load timm's or the original file of this network",
)
MM_SWIN = OpenMMLabSwin(
    'OpenMMLab Swin', NETWORK, (r'stages\.\d+\.blocks\.\d+\.attn\.w_msa\.relative_position_bias_table',)
)
MM_SWIN_V2 = OpenMMLabSwin('OpenMMLab Swin V2', NETWORK_V2, (r'stages\.\d+\.blocks\.\d+\.attn\.w_msa\.logit_scale',))
