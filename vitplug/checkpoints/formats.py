"""Converts the keys and layouts of other checkpoint formats to and from vitplug's.

Each format is recognised by its keys. *vitplug's keys* are the keys of a whole classifier of mmpretrain:
``backbone.<key of the backbone>`` and ``head.<key of the head>``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from .files import shown, some_of

State = Mapping[str, Tensor]
# A prefix of names without numbers: numbers belong to lists of blocks.
_PREFIX = r'((?:[A-Za-z_]\w*\.)*?)'
# Tables that every model computes from its shapes.
MAX_STAGES = 64
_DERIVED = re.compile(r'(?:.*\.)?(?:relative_position_index|attn_mask|rel_coords_log|relative_coords_table)')


@dataclass(frozen=True)
class Format:
    """Checkpoints of one code base and one architecture, without a prefix.

    Args:
        name: Name for messages.
        family: ``'vit'`` or ``'swin'``.
        anchor: Regular expression of a key that occurs in every checkpoint of this format and in no other format.
        names: Pairs of key prefixes ``(theirs, vitplug's)``; ``{}`` is a number. The first matching pair is used, in
            both directions.
    """

    name: str
    family: str
    anchor: str
    names: Sequence[tuple[str, str]] = ()

    def recognise(self, keys: Iterable[str]) -> set[str]:
        """The prefixes of this format's weights; empty if there are none."""
        found = (re.fullmatch(_PREFIX + self.anchor, key) for key in keys)
        return {match.group(1) for match in found if match}

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        """This format's weights with vitplug's keys; a key without a pair gets the prefix ``backbone.``."""
        names = self.all_names(_num_stages(state))
        return {_rename(key, names) or f'backbone.{key}': value for key, value in state.items()}

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        """The inverse of :meth:`to_vitplug`.

        Raises:
            ValueError: If the format has no name for a key.
        """
        names = [(ours, theirs) for theirs, ours in self.all_names(_num_stages(state))]
        renamed = {key: _rename(key, names) for key in state}
        nameless = [key for key, name in renamed.items() if name is None]
        if nameless:
            raise ValueError(
                f'{self.name} has no keys for {some_of(nameless)} ({len(nameless)} tensors): such a model cannot be '
                "exported; remove plugs and task heads first, or keep vitplug's format"
            )
        return {renamed[key]: value for key, value in state.items()}

    def all_names(self, num_stages: int) -> Sequence[tuple[str, str]]:
        """The pairs of names for a network with this number of stages."""
        return self.names


@dataclass(frozen=True)
class OpenMMLab(Format):
    """Formats with vitplug's keys, except for ``names``."""

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        names = [(ours, theirs) for theirs, ours in self.names]
        return {_rename(key, names) or key.removeprefix('backbone.'): value for key, value in state.items()}


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
    """

    merging_stage: int = 0

    def all_names(self, num_stages: int) -> Sequence[tuple[str, str]]:
        steps = range(num_stages - 1)
        merging = [(f'layers.{i + self.merging_stage}.downsample', f'backbone.stages.{i}.downsample') for i in steps]
        return (*merging, ('norm', f'backbone.norm{num_stages - 1}'), *self.names)

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(state)
        return {key: _channels_first(value) if '.downsample.' in key else value for key, value in ours.items()}

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        theirs = super().from_vitplug(state)
        return {key: _pixels_first(value) if '.downsample.' in key else value for key, value in theirs.items()}


def _channels_first(merged: Tensor) -> Tensor:
    """Columns of a 2x2 patch from (pixel, channel), pixels down first, to (channel, pixel), pixels across first."""
    return merged.unflatten(-1, (2, 2, -1)).transpose(-3, -2).movedim(-1, -3).flatten(-3)


def _pixels_first(merged: Tensor) -> Tensor:
    """The inverse of :func:`_channels_first`."""
    return merged.unflatten(-1, (-1, 2, 2)).movedim(-3, -1).transpose(-3, -2).flatten(-3)


def _num_stages(state: State) -> int:
    """Number of stages of a Swin; 0 for other networks.

    Raises:
        ValueError: If there are too many.
    """
    stages = (re.match(r'(?:backbone\.)?(?:layers|stages)\.(\d+)\.blocks\.', key) for key in state)
    number = max((int(match.group(1)) + 1 for match in stages if match), default=0)
    if number > MAX_STAGES:
        raise ValueError(f'a key names stage {number - 1}: expected at most {MAX_STAGES} stages')
    return number


def _rename(key: str, names: Sequence[tuple[str, str]]) -> str | None:
    """The key with its prefix renamed, or None if no pair matches."""
    for old, new in names:
        match = re.match(re.escape(old).replace(r'\{\}', r'(\d+)') + r'(?=\.|$)', key)
        if match:
            return new.format(*match.groups()) + key[match.end() :]
    return None


_VIT_BLOCK = [
    ('norm1', 'ln1'),
    ('norm2', 'ln2'),
    ('attn.rel_pos.mlp', 'plugs.rel_pos_mlp.bias'),
    ('attn.qkv', 'attn.qkv'),
    ('attn.proj', 'attn.proj'),
    ('ls1.gamma', 'attn.gamma1.weight'),
    ('ls2.gamma', 'ffn.gamma2.weight'),
    ('mlp.fc1', 'ffn.layers.0.0'),
    ('mlp.fc2', 'ffn.layers.1'),
]
_SWIN_BLOCK = [
    ('norm1', 'norm1'),
    ('norm2', 'norm2'),
    ('attn', 'attn.w_msa'),
    ('mlp.fc1', 'ffn.layers.0.0'),
    ('mlp.fc2', 'ffn.layers.1'),
]
_VIT_NAMES = [
    *((name, f'backbone.{name}') for name in ('cls_token', 'dist_token', 'pos_embed')),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('norm_pre', 'backbone.pre_norm'),
    *((f'blocks.{{}}.{theirs}', f'backbone.layers.{{}}.{ours}') for theirs, ours in _VIT_BLOCK),
    ('norm', 'backbone.ln1'),
    ('fc_norm', 'backbone.ln2'),
    ('pre_logits.fc', 'head.layers.pre_logits'),
    ('head_dist', 'head.layers.head_dist'),
    ('head', 'head.layers.head'),
    ('head', 'head.fc'),
]
_SWIN_NAMES = [
    ('absolute_pos_embed', 'backbone.absolute_pos_embed'),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('patch_embed.norm', 'backbone.patch_embed.norm'),
    *(
        (f'layers.{{}}.blocks.{{}}.{theirs}', f'backbone.stages.{{}}.blocks.{{}}.{ours}')
        for theirs, ours in _SWIN_BLOCK
    ),
]
_MMSEG_VIT_BLOCK = [
    ('attn.attn.in_proj_weight', 'attn.qkv.weight'),
    ('attn.attn.in_proj_bias', 'attn.qkv.bias'),
    ('attn.attn.out_proj', 'attn.proj'),
]

TIMM_VIT = Format('timm ViT', 'vit', r'blocks\.\d+\.attn\.qkv\.weight', _VIT_NAMES)
TIMM_SWIN = ReleasedSwin(
    'timm Swin',
    'swin',
    # timm's first patch merging is in layers.1 (or missing), the original's in layers.0.
    r'layers\.(?:1\.downsample\.reduction\.weight|0\.blocks\.0\.attn\.relative_position_bias_table)',
    [*_SWIN_NAMES, ('head.fc', 'head.fc')],
    merging_stage=1,
)
ORIGINAL_SWIN = ReleasedSwin(
    'original Swin', 'swin', r'layers\.0\.downsample\.reduction\.weight', [*_SWIN_NAMES, ('head', 'head.fc')]
)
MM_SWIN = OpenMMLabSwin(
    'OpenMMLab Swin', 'swin', r'stages\.\d+\.blocks\.\d+\.attn\.w_msa\.relative_position_bias_table'
)
MM_VIT = OpenMMLab('OpenMMLab ViT', 'vit', r'layers\.\d+\.attn\.qkv\.weight')
MMSEG_VIT = OpenMMLab(
    'mmseg ViT',
    'vit',
    r'layers\.\d+\.attn\.attn\.in_proj_weight',
    [(f'layers.{{}}.{theirs}', f'backbone.layers.{{}}.{ours}') for theirs, ours in _MMSEG_VIT_BLOCK],
)

#: Formats in the order in which they are tried.
FORMATS = (MM_SWIN, ORIGINAL_SWIN, TIMM_SWIN, MM_VIT, MMSEG_VIT, TIMM_VIT)
TIMM = {'vit': TIMM_VIT, 'swin': TIMM_SWIN}


def is_derived(key: str) -> bool:
    """True for a table that models compute from their shapes."""
    return _DERIVED.fullmatch(key) is not None


def recognise(state: State) -> tuple[Format, str]:
    """The format of a state dict, and the prefix of its keys.

    Raises:
        ValueError: If the format is unknown, or if there are several networks with different prefixes.
    """
    for known in FORMATS:
        prefixes = known.recognise(state)
        if len(prefixes) > 1:
            some = list(map(shown, sorted(prefixes)[:5]))
            raise ValueError(f'several networks ({known.name}) in one file: set prefix to one of {some}')
        if prefixes:
            return known, prefixes.pop()
    raise ValueError(
        f'the keys ({some_of(state)}) match no known ViT or Swin: expected {", ".join(f.name for f in FORMATS)}'
    )


def to_vitplug(state: State, prefix: str | None = None) -> tuple[dict[str, Tensor], Format]:
    """Converts a state dict of any known format.

    Args:
        state: The tensors by their keys.
        prefix: Use only the keys that begin with this; by default, the prefix is detected.

    Returns:
        The tensors by vitplug's keys, and their original format.

    Raises:
        ValueError: If no key has the prefix, or the format is not recognised.
    """
    if prefix:
        below = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        if not below:
            raise ValueError(f'prefix={prefix!r}: no key begins with it; the keys are {some_of(state)}')
        state = below
    state = {key: value for key, value in state.items() if not is_derived(key)}
    known, found = recognise(state)
    inside = {key.removeprefix(found): value for key, value in state.items() if key.startswith(found)}
    outer = found.removesuffix('backbone.')
    beside = {key.removeprefix(outer): value for key, value in state.items() if not key.startswith(found)}
    return {**known.to_vitplug(inside), **beside}, known


def convert(state: State, to: str = 'vitplug', prefix: str | None = None) -> tuple[dict[str, Tensor], str]:
    """Converts a state dict of any known format to vitplug's or timm's keys.

    Args:
        state: The tensors by their keys.
        to: ``'vitplug'`` or ``'timm'``.
        prefix: As in :func:`to_vitplug`.

    Returns:
        The converted tensors, and the name of their original format.

    Raises:
        ValueError: If the format is not recognised, or timm has no name for a key.
    """
    ours, source = to_vitplug(state, prefix)
    return TARGETS[to](ours, source), source.name


TARGETS = {'vitplug': lambda ours, source: ours, 'timm': lambda ours, source: TIMM[source.family].from_vitplug(ours)}
