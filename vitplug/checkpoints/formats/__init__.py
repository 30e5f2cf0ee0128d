"""Converts the keys and layouts of other checkpoint formats to and from vitplug's.

Each format is recognised by its keys; :mod:`.format` says what a format is.
"""

import re
from typing import NamedTuple

from torch import Tensor

from ..files import some_of
from . import foundation, mvit, networks, papers, swin, vit
from .format import Format, State

#: All formats. Where a checkpoint has the keys of several, the first is taken: the more special one.
FORMATS = (
    *(papers.REFINED_VIT, papers.REMVIT, papers.REVIT, papers.BVIT),
    *(networks.T2T_VIT, networks.MM_T2T_VIT, networks.ORIGINAL_LVT, networks.MM_LVT),
    *(networks.ORIGINAL_PIT, networks.TIMM_PIT, mvit.MVIT, mvit.MM_MVIT, mvit.TIMM_MVIT),
    *(swin.HF_SWIN, swin.MM_SWIN_V2, swin.ORIGINAL_SWIN_V2, swin.TIMM_SWIN_V2),
    *(swin.MM_SWIN, swin.ORIGINAL_SWIN, swin.TIMM_SWIN, networks.MM_MIXER, networks.TIMM_MIXER),
    *(vit.MM_VIT, vit.MMSEG_VIT, *foundation.FORMATS, vit.TIMM_ROPE_VIT, vit.TIMM_VIT),
)
#: The networks that timm has.
_TIMM = (vit.TIMM_VIT, swin.TIMM_SWIN, swin.TIMM_SWIN_V2, mvit.TIMM_MVIT, networks.TIMM_MIXER, networks.TIMM_PIT)
TIMM = {known.network: known for known in _TIMM}
#: What a checkpoint can be converted to.
TARGETS = ('vitplug', 'timm')
# Tables that every model computes from its shapes.
_DERIVED = re.compile(
    r'(?:.*\.)?(?:relative_position_index|attn_mask|rel_coords_log|relative_coords_table|rope\.freqs_(?:cos|sin))'
)


class Converted(NamedTuple):
    """A converted state dict.

    Attributes:
        state: The tensors by their new keys.
        source: Their original format.
        notes: What was left out, added or merged, and why; one clause each.
    """

    state: dict[str, Tensor]
    source: Format
    notes: list[str]


def is_derived(key: str) -> bool:
    """True for a table that models compute from their shapes."""
    return _DERIVED.fullmatch(key) is not None


def recognise(state: State) -> tuple[Format, str]:
    """The format of a state dict, and the prefix of its keys.

    Raises:
        ValueError: If the format is unknown, or there are several networks with different prefixes.
    """
    by_prefix: dict[str, Format] = {}
    for known in FORMATS:
        by_prefix = {**dict.fromkeys(known.recognise(state), known), **by_prefix}
    if len(by_prefix) > 1:
        choices = ', '.join(f'{prefix!r} ({by_prefix[prefix].name})' for prefix in sorted(by_prefix)[:5])
        raise ValueError(f'several networks in one file: set prefix to one of {choices}')
    for prefix, known in by_prefix.items():
        return known, prefix
    raise ValueError(
        f'the keys ({some_of(state)}) match no known network: expected '
        f'{", ".join(known.name for known in FORMATS if not known.why)}'
    )


def to_vitplug(state: State, prefix: str | None = None) -> Converted:
    """Converts a state dict of any known format.

    Args:
        state: The tensors by their keys.
        prefix: Use only the keys that begin with this; by default, the prefix is detected.

    Returns:
        The tensors by vitplug's keys, their original format, and notes.

    Raises:
        ValueError: If no key has the prefix, the format is not recognised, or a tensor has no place in vitplug.
    """
    if prefix:
        prefix = prefix if prefix.endswith('.') else f'{prefix}.'
        below = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        if not below:
            raise ValueError(f'prefix={prefix!r}: no key begins with it; the keys are {some_of(state)}')
        state = below
    if updates := [key for key in state if re.search(r'(?:^|\.)lora_\w', key)]:
        raise ValueError(
            f'the file has low-rank updates beside its weights ({some_of(updates, 2)}), and what they change is not in '
            'them: merge them where they were trained (loralib: model.eval() does; peft: model.merge_and_unload()) '
            "and save the tensors whose names have no 'lora_'"
        )
    derived = [key for key in state if is_derived(key)]
    state = {key: value for key, value in state.items() if key not in derived}
    known, inner_prefix = recognise(state)
    inside = {key.removeprefix(inner_prefix): value for key, value in state.items() if key.startswith(inner_prefix)}
    outer = inner_prefix.removesuffix('backbone.')
    beside = {key.removeprefix(outer): value for key, value in state.items() if not key.startswith(inner_prefix)}
    ours = {**known.to_vitplug(inside), **beside}
    notes = known.notes(inside)
    if derived:
        notes.append(f'left out tables that models compute ({len(derived)}: {some_of(derived, 2)})')
    return Converted(ours, known, notes)


def convert(state: State, to: str = 'vitplug', prefix: str | None = None) -> Converted:
    """Converts a state dict of any known format to the keys of vitplug, which are mmpretrain's, or of timm.

    Args:
        state: The tensors by their keys.
        to: One of :data:`TARGETS`.
        prefix: As in :func:`to_vitplug`.

    Returns:
        The converted tensors, their original format, and notes.

    Raises:
        ValueError: If the format is not recognised, or timm has no such network or no name for a key.
    """
    ours, source, notes = to_vitplug(state, prefix)
    if to == 'vitplug':
        return Converted(ours, source, notes)
    if source.network not in TIMM:
        raise ValueError(f'timm has no {source.network}: expected one of {", ".join(TIMM)}')
    kept = {key: value for key, value in ours.items() if not key.endswith('rotary.periods')}
    if len(kept) < len(ours):
        notes = [*notes, 'left out rotary.periods, which timm computes']
    fitting = [known for known in foundation.TIMM if source.network == vit.NETWORK and known.fits(ours)]
    return Converted((*fitting, TIMM[source.network])[0].from_vitplug(kept), source, notes)
