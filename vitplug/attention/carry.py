"""The carry: tensors that travel from layer to layer inside one forward.

A plug that lets layers talk to each other (handed-over scores, shared maps, tapped q, k and v)
puts its tensors here under its own key. The carry is an argument and a return value of every
layer and is never changed in place: activation checkpointing may run a layer twice, and two
forwards of one model may be in flight.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

Carry = Mapping[str, Any]
#: What a module of the qkv socket returns.
QKVCarry = tuple[Tensor, Tensor, Tensor, Carry]


def carrying(carry: Carry, key: str, value: Any) -> Carry:
    """Returns a new carry that holds ``value`` under ``key`` besides everything ``carry`` holds."""
    return {**carry, key: value}


def taken(socket: str, returned: tuple, parts: int) -> tuple:
    """What a module of a socket returns. A lone tensor would be taken apart along its batch.

    Raises:
        TypeError: If it is no tuple of so many parts.
    """
    if not isinstance(returned, tuple) or len(returned) != parts:
        what = f'a tuple of {len(returned)}' if isinstance(returned, tuple) else f'a {type(returned).__name__}'
        last = '' if socket == 'extra_keys' else ', with the carry as the last'
        raise TypeError(f'a module of the socket {socket!r} returns {what}: must be a tuple of {parts}{last}')
    return returned
