"""Converts the keys and layouts of other checkpoint formats to vitplug's, which are mmpretrain's.

Each format is recognised by its keys; :mod:`.format` says what a format is.
"""

import re
from typing import NamedTuple

from torch import Tensor

from ..files import some_of
from . import others, vit
from .format import Format, State

#: All formats. Where a checkpoint has the keys of several, the first is taken: the more special one.
FORMATS = (*others.FORMATS, *vit.FORMATS)
# Tables that every model computes from its shapes.
_DERIVED = re.compile(
    r'(?:.*\.)?(?:relative_position_index|attn_mask|rel_coords_log|relative_coords_table|rope\.freqs_(?:cos|sin))'
)


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
        by_prefix = {**dict.fromkeys(known.recognise(state), known), **by_prefix}
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
        ValueError: If no key has the prefix, the format is not recognised, or a tensor has no place in vitplug.
    """
    prefix = f'{prefix.removesuffix(".")}.' if prefix else ''
    left_out = [key for key in state if is_derived(key) or not key.startswith(prefix)]
    if not any(key.startswith(prefix) for key in state):
        raise ValueError(f'prefix={prefix!r}: no key begins with it; the keys are {some_of(state)}')
    state = {key.removeprefix(prefix): state[key] for key in state if key not in left_out}
    source, inner = recognise(state)
    outer = inner.removesuffix('backbone.')
    inside = {key.removeprefix(inner): value for key, value in state.items() if key.startswith(inner)}
    beside = {key.removeprefix(outer): value for key, value in state.items() if not key.startswith(inner)}
    return Converted(source.to_vitplug(inside) | beside, source, left_out)
