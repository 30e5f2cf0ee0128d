"""The carry: tensors that travel from layer to layer inside one forward.

A plug that lets layers talk to each other (handed-over scores, shared maps, tapped q, k and v)
puts its tensors here under its own key. The carry is an argument and a return value of every
layer and is never changed in place: activation checkpointing may run a layer twice, and two
forwards of one model may be in flight.
"""

from collections.abc import Mapping
from typing import Any

Carry = Mapping[str, Any]


def carrying(carry: Carry, key: str, value: Any) -> Carry:
    """Returns a new carry that holds ``value`` under ``key`` besides everything ``carry`` holds."""
    return {**carry, key: value}
