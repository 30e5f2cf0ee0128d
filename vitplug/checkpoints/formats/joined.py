"""Formats with several tensors where vitplug has one: q, k and v apart, the two halves of a SwiGLU apart."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .format import Format, Names, State, below

#: The parts of a tensor, by their names inside a block, and the name of the whole.
Join = tuple[tuple[str, ...], str]
# vitplug's names of the two feed-forwards.
_GATED = re.compile(r'(?:.*\.)?(?:ffn\.w12|mlp\.(?:w12|w1|fc1_g|weights_in|gate_up_proj))\..*')


@dataclass(frozen=True)
class JoinedFormat(Format):
    """ViTs whose blocks have other tensors than vitplug's.

    Args:
        block: Path of a block, with ``{}`` for its number.
        inside: Names inside a block, but for the MLP.
        plain: Names of an MLP of two layers.
        gated: Names of a SwiGLU.
        joins: Tensors that are one in vitplug; by names inside a block. Missing parts are refused, but for ``keyless``.
        dimensions: Keys whose tensors have so many axes, where vitplug's have leading axes of size 1.
        keyless: Names of key biases that the format lacks: they are 0, and have to be 0 in an export.
        zero_free: Whether biases of q and v that are all 0 are left out, too.
        marks: Regular expressions of vitplug's keys; a network of this format has a key for each of them.
        lacks: The same of keys that it has not.
    """

    block: str = 'blocks.{}'
    inside: Names = ()
    plain: Names = ()
    gated: Names = ()
    joins: Sequence[Join] = ()
    dimensions: Mapping[str, int] = field(default_factory=dict)
    keyless: str = ''
    zero_free: bool = False
    marks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def fits(self, ours: State) -> bool:
        """True for a network, by vitplug's keys, that belongs to this format."""
        has = [mark for mark in (*self.marks, *self.lacks) if any(re.fullmatch(mark, key) for key in ours)]
        return has == list(self.marks)

    def all_names(self, state: State) -> Names:
        mlp = self.gated if self._is_gated(state) else self.plain
        blocks = below(self.block, 'backbone.layers.{}', [*self.inside, *mlp])
        return [*self.names, *blocks]

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(_join(state, self.joins, self.keyless))
        theirs = {new: old for old, new in self.names}
        return {
            key: value.reshape((1,) * (3 - value.ndim) + value.shape) if theirs.get(key) in self.dimensions else value
            for key, value in ours.items()
        }

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        theirs = self._split(super().from_vitplug(state))
        return {
            key: value.reshape(value.shape[value.ndim - self.dimensions.get(key, value.ndim) :])
            for key, value in theirs.items()
        }

    def _is_gated(self, state: State) -> bool:
        """True for a SwiGLU, also where both halves are one tensor under the name of an MLP's first layer."""
        if any(_GATED.fullmatch(key) for key in state):
            return True
        first = next((key for key in state if re.fullmatch(r'.*\.mlp\.fc1\.weight', key)), None)
        second = first and state.get(first.replace('fc1', 'fc2'))
        return second is not None and state[first].shape[0] == 2 * second.shape[1]

    def _split(self, state: State) -> dict[str, Tensor]:
        tensors = dict(state)
        for parts, whole in self.joins:
            for key in [key for key in tensors if _match(whole, key)]:
                before, after = _match(whole, key).groups(default='')
                pieces = tensors.pop(key).chunk(len(parts))
                named = {f'{before}{part}{after}': piece for part, piece in zip(parts, pieces, strict=True)}
                tensors |= {name: piece for name, piece in named.items() if not self._is_left_out(name, piece, named)}
        return tensors

    def _is_left_out(self, name: str, piece: Tensor, pieces: State) -> bool:
        if piece.ndim > 1 or not self.keyless or not any(other.endswith(self.keyless) for other in pieces):
            return False
        if self.zero_free and not any(other.any() for other in pieces.values()):
            return True
        if not name.endswith(self.keyless):
            return False
        if piece.any():
            raise ValueError(
                f'{self.name} has no bias of keys, and {name} is not 0: train with layer_cfgs=dict(key_bias=False)'
            )
        return True


def _match(name: str, key: str) -> re.Match | None:
    """What comes before and after a name inside a block in a key."""
    return re.fullmatch(rf'(.*\.)?{re.escape(name)}(\.\w+)?', key)


def _join(state: State, joins: Sequence[Join], keyless: str) -> dict[str, Tensor]:
    """Puts parts together.

    Raises:
        ValueError: If one is missing that is no bias of keys, which some formats lack because it is 0.
    """
    tensors = dict(state)
    for parts, whole in joins:
        for key in [key for key in state if any(_match(part, key) for part in parts)]:
            match = next(filter(None, (_match(part, key) for part in parts)))
            before, after = match.groups(default='')
            # Without its first part, whose weight is not there either, the tensor has the name of a plain one.
            is_plain = after and f'{before}{parts[0]}.weight' not in state
            if key not in tensors or is_plain:
                continue
            names = [f'{before}{part}{after}' for part in parts]
            pieces = {name: tensors.pop(name) for name in names if name in tensors}
            lacking = [name for name in names if name not in pieces and not (keyless and name.endswith(keyless))]
            if lacking:
                raise ValueError(f'the file has {key} and lacks {", ".join(lacking)}: get a whole copy of it')
            zeros = torch.zeros_like(next(iter(pieces.values())))
            tensors[f'{before}{whole}{after}'] = torch.cat([pieces.get(name, zeros) for name in names])
    return tensors
