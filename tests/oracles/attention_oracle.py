"""Attention and its parts entry by entry, in float64: slow, obvious, and without a line of the package's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor
from torch.testing import assert_close

from vitplug.attention import TokenGrid, attend

SCALE = 0.7  # of the scores of a layer


def places(grid: TokenGrid) -> list[tuple[int, int] | None]:
    """Row and column of every token, None for prefix tokens."""
    return [None] * grid.num_prefix + list(product(range(grid.height), range(grid.width)))


def offset_bias(table: Tensor, queries: TokenGrid, keys: TokenGrid) -> Tensor:
    """``(H or 1, Nq, Nk)``: for each pair the entry of its offset, query minus key; 0 for prefix tokens."""
    heads, _, columns = table.shape
    zero_first = torch.cat((table.new_zeros(heads, 1), table.flatten(1)), dim=1)

    def entry(query, key):
        if query is None or key is None:
            return 0
        y, x = (q - k + side - 1 for q, k, side in zip(query, key, (keys.height, keys.width), strict=True))
        return 1 + y * columns + x

    return zero_first[:, torch.tensor([[entry(query, key) for key in places(keys)] for query in places(queries)])]


def query_bias(rows: Tensor, columns: Tensor, queries: TokenGrid, keys: TokenGrid) -> Tensor:
    """``(B, W, H, Nq, Nk)``: ``rows[i, y_j] + columns[i, x_j]``; 0 for prefix tokens."""

    def of_pair(i, key):
        if i < 0 or key is None:
            return torch.zeros_like(rows[..., 0, 0])
        return rows[..., i, key[0]] + columns[..., i, key[1]]

    on_grid = range(-queries.num_prefix, queries.height * queries.width)
    return torch.stack([torch.stack([of_pair(i, key) for key in places(keys)], -1) for i in on_grid], -2)


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return scale * torch.einsum('bwhid,bwhjd->bwhij', q, k)


def probs(logits: Tensor, seen: Tensor | float = 1.0) -> Tensor:
    """Softmax over the seen keys; ``seen`` is 1 for these and 0 for the others."""
    weights = (logits - logits.amax(-1, keepdim=True).detach()).exp() * seen
    return weights / weights.sum(-1, keepdim=True)


def shifted(maps: Tensor, down: int, right: int) -> Tensor:
    """``maps[i + down, j + right]``, 0 outside the plane."""

    def picks(size, by):
        return maps.new_tensor([[float(column - row == by) for column in range(size)] for row in range(size)])

    return picks(maps.shape[-2], down) @ maps @ picks(maps.shape[-1], right).T


def convolved(maps: Tensor, kernel: Tensor) -> Tensor:
    """Maps ``(..., H, Nq, Nk)`` by a kernel ``(H', H or 1, k, l)`` over their plane; depthwise where it has one map."""
    out = 0.0
    for a, b in product(*map(range, kernel.shape[2:])):
        moved = shifted(maps, a - kernel.shape[2] // 2, b - kernel.shape[3] // 2)
        out = out + mixed(moved, kernel[:, :, a, b])
    return out


def mixed(maps: Tensor, weights: Tensor) -> Tensor:
    """Each new map as a mixture of the maps ``(..., H, Nq, Nk)``, by ``(H', H)``; ``(H, 1)`` scales each map."""
    return weights[..., None] * maps if weights.shape[1] == 1 else torch.einsum('ng,...gij->...nij', weights, maps)


def gradients(outs: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Of a scalar that every output element moves by another amount; 0 for leaves that have no part in it."""
    if not leaves:
        return ()
    weights = [torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) for out in outs]
    return torch.autograd.grad(outs, leaves, weights, retain_graph=True, allow_unused=True, materialize_grads=True)


def assert_same(
    got: Sequence[Tensor], expected: Sequence[Tensor], leaves: Sequence[Tensor | None], **tolerance: float
) -> None:
    """Values and gradients."""
    assert_close(got, expected, **tolerance)
    leaves = [leaf for leaf in leaves if leaf is not None]
    assert_close(gradients(got, leaves), gradients(expected, leaves), **tolerance)


def blended(alpha: Tensor, own: Tensor, before: Tensor | None, bias, bias_mode: str) -> tuple[Tensor, Tensor]:
    """One step of residual attention: the logits, and what is handed on; ``before`` was, None at a start."""
    if bias_mode == 'blend':
        own = own + bias
    mixed = own if before is None else alpha * own + (1 - alpha) * before
    logits = mixed if bias_mode == 'blend' else mixed + bias
    return logits, mixed if bias_mode == 'after' else logits


@dataclass
class Layer:
    """Inputs of one attention; ``bias`` is the sum of its biases as the oracles have it, of all pairs."""

    q: Tensor
    k: Tensor
    v: Tensor
    biases: list = field(default_factory=list)
    bias: Tensor | float = 0.0
    leaves: list[Tensor] = field(default_factory=list)

    def scores(self) -> Tensor:
        return scores(self.q, self.k, SCALE)

    def attend(self, **settings) -> tuple[Tensor, dict]:
        """The package's output, and the carry."""
        return attend(self.q, self.k, self.v, scale=SCALE, biases=tuple(self.biases), **settings)

    def add(self, bias, expanded: Tensor, *leaves: Tensor) -> None:
        """A bias, as the package and as the oracles have it, and what both depend on."""
        self.biases, self.bias, self.leaves = [*self.biases, bias], self.bias + expanded, [*self.leaves, *leaves]
