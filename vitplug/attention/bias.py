"""Position biases: terms of the score that depend on where query and key lie.

A bias is an object, not a tensor of all pairs. Each kind can be expanded to all pairs, scaled and added to its own
kind; beyond that, a bias by query can be folded into wider q and k.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import replace

from .cache import cached
from .grids import GridPair, TokenGrid

Bias = TypeVar('Bias', bound='PairBias')


class PairBias(Protocol):
    """A position bias of one window's pairs of query and key."""

    def expand(self, step: int = 1) -> Tensor:
        """The bias of all pairs, ``(B or 1, W or 1, H or 1, Nq, Nk)``; leading axes of size 1 may be missing.

        Args:
            step: Nk is rounded up to a multiple of it; values of keys that do not exist mean nothing.
        """

    def scaled(self: Bias, factor: Tensor | float) -> Bias:
        """The bias times a factor."""

    def plus(self: Bias, other: Bias) -> Bias:
        """The sum with a bias of the same kind, on the same grids."""


@dataclass(frozen=True)
class OffsetBias:
    """A bias that depends on the offset alone, query minus key.

    Args:
        table: ``(H or 1, qh + kh - 1, qw + kw - 1)``, see :class:`~vitplug.attention.grids.GridPair`, or its rows one
            after the other. Pairs with a prefix token have no bias.
        pairs: The grids.
    """

    table: Tensor
    pairs: GridPair

    def expand(self, step: int = 1) -> Tensor:
        """``(H or 1, Nq, Nk)``, see :meth:`~vitplug.attention.grids.GridPair.expand`."""
        return self.pairs.expand(self.table, step)

    def scaled(self, factor: Tensor | float) -> 'OffsetBias':
        return replace(self, table=factor * self.table)

    def plus(self, other: 'OffsetBias') -> 'OffsetBias':
        tables = self.table, other.table
        alike = tables if tables[0].ndim == tables[1].ndim else [table.flatten(1) for table in tables]
        return replace(self, table=alike[0] + alike[1])


@dataclass(frozen=True)
class QueryBias:
    """A bias that depends on the query's content, and on the key's row and column apart::

        bias_ij = rows[i, y_j] + columns[i, x_j]

    The decomposed relative positions of *MViTv2*, Eq. (3), are of this kind, with ``rows[i, y] = q_i . R_h``.

    Args:
        rows: ``(B, W, H, Nq, kh)``, of the queries on the grid; prefix tokens have no bias.
        columns: ``(B, W, H, Nq, kw)``.
        pairs: The grids.
    """

    rows: Tensor
    columns: Tensor
    pairs: GridPair

    def expand(self, step: int = 1) -> Tensor:
        """``(B, W, H, Nq, Nk)``."""
        pairs = (self.rows.unsqueeze(-1) + self.columns.unsqueeze(-2)).flatten(-2)
        sides = (self.pairs.keys.num_prefix, -self.pairs.keys.num_tokens % step, self.pairs.queries.num_prefix, 0)
        return F.pad(pairs, sides) if any(sides) else pairs

    def scaled(self, factor: Tensor | float) -> 'QueryBias':
        return replace(self, rows=factor * self.rows, columns=factor * self.columns)

    def plus(self, other: 'QueryBias') -> 'QueryBias':
        return replace(self, rows=self.rows + other.rows, columns=self.columns + other.columns)

    def widening(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Channels to append to q and to k, so that their products gain the bias.

        Returns:
            ``(B, W, H, Nq, kh + kw)`` and, of zeros and ones, ``(Nk, kh + kw)``.
        """
        of_queries = F.pad(torch.cat((self.rows, self.columns), dim=-1), (0, 0, self.pairs.queries.num_prefix, 0))
        return of_queries.to(dtype), _places(self.pairs.keys, dtype, of_queries.device)


@cached(32)
def _places(keys: TokenGrid, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Which row and which column each key lies in, as zeros and ones ``(Nk, kh + kw)``."""
    rows, columns = (torch.eye(n, dtype=dtype, device=device) for n in keys.hw)
    of_keys = torch.cat((rows.repeat_interleave(columns.shape[0], 0), columns.repeat(rows.shape[0], 1)), dim=1)
    return F.pad(of_keys, (0, 0, keys.num_prefix, 0))


@dataclass(frozen=True)
class DenseBias:
    """A separate value for every pair, prefix tokens included: tables with entries for the class token, biases of text.

    Args:
        values: ``(B or 1, W or 1, H or 1, Nq, Nk or more)``; leading axes of size 1 may be missing.
        num_keys: ``Nk``, where columns after it belong to no key; None where there are none.
    """

    values: Tensor
    num_keys: int | None = None

    def expand(self, step: int = 1) -> Tensor:
        present = self.values.shape[-1]
        num_keys = present if self.num_keys is None else self.num_keys
        surplus = num_keys + -num_keys % step - present
        if surplus < 0:
            return self.values[..., :surplus]
        return F.pad(self.values, (0, surplus)) if surplus else self.values

    def scaled(self, factor: Tensor | float) -> 'DenseBias':
        return replace(self, values=factor * self.values)

    def plus(self, other: 'DenseBias') -> 'DenseBias':
        return DenseBias(self.expand() + other.expand())


def merged(biases: Iterable[PairBias]) -> tuple[PairBias, ...]:
    """The sum of biases: at most one of each kind."""
    by_kind: dict[type, PairBias] = {}
    for bias in biases:
        before = by_kind.get(type(bias))
        by_kind[type(bias)] = bias if before is None else before.plus(bias)
    return tuple(by_kind.values())


def expand_all(biases: Iterable[PairBias], step: int = 1) -> Tensor | None:
    """The sum of biases over all pairs, ``(..., H or 1, Nq, Nk rounded up)``; None where there is none."""
    total = None
    for bias in biases:
        total = bias.expand(step) if total is None else total + bias.expand(step)
    return total
