"""Converts the keys and layouts of other checkpoint formats to vitplug's, which are mmpretrain's.

Each format is recognised by its keys; :mod:`.format` says what a format is.
"""

import re
from typing import NamedTuple

from torch import Tensor

from ..files import some_of
from . import others, vit
from .format import Format, State

BACKBONE = 'backbone.'
#: All formats. Where a checkpoint has the keys of several, the first is taken: the more special one.
FORMATS = (*others.FORMATS, *vit.FORMATS)
# Tables that every model computes from its shapes.
_DERIVED = re.compile(
    r'(?:.*\.)?(?:relative_position_index|attn_mask|rel_coords_log|relative_coords_table|rope\.freqs_(?:cos|sin))'
)
# Tensors, below any prefix without numbers, that no host has a place for, and what to do.
_REFUSED = {
    r'(?:[A-Za-z_]\w*\.)*(?:(?:blocks|layers)\.\d+(?:\.attn)?|encoder(?:\.layer\.\d+\.attention\.\w+)?|rel_pos_bias|'
    r'shared_position_bias)\.(?:relative_position_bias\.)?relative_position_bias_table': (
        'relative positions of a BEiT, for which there is no host; vitplug.plug_in takes a model of timm or of '
        'Hugging Face'
    ),
    r'(?:.*\.)?lora_\w.*': (
        'low-rank updates beside the weights, and what they change is not in them: merge them where they were trained '
        "(peft: model.merge_and_unload()) and save the tensors whose names have no 'lora_'"
    ),
}


class Converted(NamedTuple):
    """A converted state dict by its new keys, its original format, and the tensors that it has no use for."""

    state: dict[str, Tensor]
    source: Format
    left_out: list[str]


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
        # Not the transformers of mmseg's heads.
        found = (prefix for prefix in known.recognise(state) if not prefix.endswith('head.'))
        by_prefix = {**dict.fromkeys(found, known), **by_prefix}
    if not by_prefix:
        names = ', '.join(known.name for known in FORMATS)
        raise ValueError(f'the keys ({some_of(state)}) match no known network: expected {names}')
    if len(by_prefix) > 1:
        choices = ', '.join(f'{prefix!r} ({by_prefix[prefix].name})' for prefix in sorted(by_prefix)[:5])
        raise ValueError(f'several networks in one file: set prefix to one of {choices}')
    [(prefix, known)] = by_prefix.items()
    return known, prefix


def convert(state: State, prefix: str | None = None) -> Converted:
    """Converts a state dict of any known format to the keys of vitplug, which are mmpretrain's.

    Args:
        state: The tensors by their keys.
        prefix: Use only the keys that begin with this; by default, the prefix is detected.

    Raises:
        ValueError: If no key has the prefix, the format is not recognised, or the network is known and refused.
    """
    prefix = f'{prefix.removesuffix(".")}.' if prefix else ''
    left_out = [key for key in state if is_derived(key) or not key.startswith(prefix)]
    if not any(key.startswith(prefix) for key in state):
        raise ValueError(f'prefix={prefix!r}: no key begins with it; the keys are {some_of(state)}')
    state = {key.removeprefix(prefix): state[key] for key in state if key not in left_out}
    for names, reason in _REFUSED.items():
        if refused := [key for key in state if re.fullmatch(names, key)]:
            raise ValueError(f'{some_of(refused, 2)}: {reason}')
    source, inner = recognise(state)
    outer = inner.removesuffix(BACKBONE)
    inside = {key.removeprefix(inner): value for key, value in state.items() if key.startswith(inner)}
    beside = {key.removeprefix(outer): value for key, value in state.items() if not key.startswith(inner)}
    return Converted(source.to_vitplug(inside) | beside, source, left_out)


def take_own_names(state: dict[str, Tensor]) -> None:
    """Gives the weights of a whole model with mmseg's ViT or mmpretrain's early Swin the names that vitplug has."""
    for known in (vit.MMSEG_VIT, others.MM_SWIN):
        if BACKBONE in known.recognise(state):
            names = [key for key in state if key.startswith(BACKBONE)]
            state.update(known.to_vitplug({key.removeprefix(BACKBONE): state.pop(key) for key in names}))
