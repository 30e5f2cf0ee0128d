"""Attention by tiles: some queries of some heads at a time, so that their maps stay in the processor's cache.

Backward forms every tile again, so memory grows with N and not with N^2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from vitplug.compat import replace

from . import tuning
from .grids import GridPair, TokenGrid, ceil_div
from .inputs import Attention
from .precision import at_least_float32, softmax, without_autocast
from .tuning import on_cpu

# Indices of a tile's queries, and of its keys, into the first axes of (G, H, N, d).
TileIndex = tuple[tuple[int, slice, slice], tuple[int, slice]]


@dataclass(frozen=True)
class QueryTerms:
    """A bias by query, or its gradient: the terms of a query for the keys' rows and columns.

    Args:
        rows: ``(G, H, Nq, kh)``.
        columns: ``(G, H, Nq, kw)``.
        grid: Grid of the keys.
    """

    rows: Tensor
    columns: Tensor
    grid: TokenGrid

    def expand(self, rows: slice, num_keys: int) -> Tensor:
        """The bias of some query rows, ``(G, H, rows, num_keys)``."""
        queries = (slice(None), slice(None), rows)
        bias = self.rows.new_zeros(*self.rows[queries].shape[:3], num_keys)
        self.add_to(bias, queries)
        return bias

    def add_to(self, logits: Tensor, queries: tuple) -> None:
        """Adds the bias of some queries, an index into the first axes, to their logits ``(..., keys)``, in place."""
        pairs = self._on_grid(logits)
        pairs.add_(self.rows[queries].unsqueeze(-1)).add_(self.columns[queries].unsqueeze(-2))

    def take(self, grad_scores: Tensor, queries: tuple) -> None:
        """As a gradient: sets that of some queries, given that of their scores ``(..., keys)``."""
        pairs = self._on_grid(grad_scores)
        self.rows[queries] = pairs.sum(-1)
        self.columns[queries] = pairs.sum(-2)

    def _on_grid(self, pairs: Tensor) -> Tensor:
        return pairs[..., self.grid.num_prefix : self.grid.num_tokens].unflatten(-1, self.grid.hw)


@dataclass(frozen=True)
class TileBias:
    """The bias of an attention by tiles.

    Args:
        row_table: The table that bias rows are cut from; None for no bias by offset.
        pairs: The grids of that bias.
        by_query: The bias by query; None for none.
    """

    row_table: Tensor | None = None
    pairs: GridPair | None = None
    by_query: QueryTerms | None = None

    def rows(self, rows: slice, num_keys: int) -> Tensor | None:
        """Both biases of some query rows, which broadcast to ``(G, H, rows, num_keys)``; None for none."""
        bias = None
        if self.row_table is not None and self.pairs is not None:
            bias = bias_rows(self.row_table, self.pairs, rows, num_keys)[None]
        if self.by_query is None:
            return bias
        by_query = self.by_query.expand(rows, num_keys)
        return by_query if bias is None else by_query.add_(bias)


@dataclass
class TileGroup:
    """Tiles with the same bias rows, which are formed once; all tiles where there is no bias.

    Args:
        images: How many images and windows.
        num_keys: Keys without padding, which comes after them.
        heads: The heads of each tile.
        rows: The query rows of each tile.
        workspace: Memory for two tiles of maps. Every tile uses it again, so it stays in the cache.
        bias: The bias rows ``(H or 1, rows, keys)``; None for none.
        grad_bias: Takes their gradient, ``(heads of a tile, rows, keys)``; None where it is not wanted.
        by_query: The bias by query of all tiles; None for none.
    """

    images: int
    num_keys: int
    heads: Sequence[slice]
    rows: Sequence[slice]
    workspace: tuple[Tensor, ...]
    bias: Tensor | None = None
    grad_bias: Tensor | None = None
    by_query: QueryTerms | None = None

    def tiles(self) -> Iterator[TileIndex]:
        """The tiles, one after another."""
        for g, heads, rows in product(range(self.images), self.heads, self.rows):
            yield (g, heads, rows), (g, heads)

    def probs(self, q: Tensor, k: Tensor, tile: TileIndex) -> Tensor:
        """Probabilities ``(H, rows, keys)`` of a tile, from all scaled q and k; padded keys get none."""
        queries, keys = tile
        logits = self.products(q[queries], k[keys])
        logits[..., self.num_keys :] = -torch.inf
        if self.by_query is not None:
            self.by_query.add_to(logits, queries)
        return self.softmax(self.add_bias(logits))

    def add_bias(self, logits: Tensor) -> Tensor:
        """Adds the bias to logits ``(H, rows, keys)``, in place."""
        return logits if self.bias is None else logits.add_(self.bias)

    def softmax(self, logits: Tensor) -> Tensor:
        """The probabilities, in the workspace."""
        return softmax(logits, out=_view(self.workspace[1], logits.shape))

    def grad_scores(self, probs: Tensor, v: Tensor, grad_out: Tensor, inner: Tensor, grad_v: Tensor) -> Tensor:
        """Gradient ``(H, rows, keys)`` of a tile's scores; the gradients of v and of the bias are added up.

        ``inner`` is ``sum_j P_ij dP_ij`` of every row, which is the product of the output with its gradient.
        """
        grad_v.baddbmm_(probs.to(v.dtype).mT, grad_out)
        grad_scores = self.products(grad_out, v).sub_(inner).mul_(probs)
        if self.grad_bias is not None:
            self.grad_bias[: len(grad_scores)].add_(grad_scores)
        return grad_scores

    def products(self, q: Tensor, k: Tensor, before: Tensor | None = None, share: float = 1.0) -> Tensor:
        """``q @ k^T``, or ``share`` of it and the rest of ``before``, in the workspace."""
        out = _view(self.workspace[0], (*q.shape[:2], k.shape[1]))
        if before is None:
            return torch.bmm(q, k.mT, out=out)
        return torch.mul(before, 1 - share, out=out).baddbmm_(q, k.mT, alpha=share)


def tile_groups(
    q: Tensor,
    k: Tensor,
    row_table: Tensor | None,
    pairs: GridPair | None,
    num_keys: int,
    grad_row_table: Tensor | None = None,
    by_query: QueryTerms | None = None,
) -> Iterator[TileGroup]:
    """All tiles of attention of scaled q ``(G, H, Nq, d)`` and k ``(G, H, keys, d)``, by groups.

    On a CPU a tile has a head for every thread: the product of one head does not keep two threads busy, and the maps
    of more heads leave the cache before the next step reads them. The gradient of a group's bias rows is added to
    ``grad_row_table`` before the next group comes.

    Args:
        q: Queries.
        k: Keys; those after ``num_keys`` are padding.
        row_table: The table that bias rows are cut from; None for no bias.
        pairs: The grids of the bias.
        num_keys: Keys without padding.
        grad_row_table: Takes the gradient of ``row_table``; None where it is not wanted.
        by_query: The bias by query; None for none.
    """
    images, heads, tokens, _ = q.shape
    keys, cpu = k.shape[2], on_cpu(q.device)
    together = min(heads, torch.get_num_threads()) if cpu else heads
    size = min(tokens, rows_per_tile(q.device, keys if cpu else heads * keys))
    dtypes = (q.dtype, at_least_float32(q.dtype))
    workspace = tuple(q.new_empty(together * size * keys, dtype=dtype) for dtype in dtypes)
    all_heads, all_rows = list(even_slices(heads, together)), list(even_slices(tokens, size))
    if row_table is None or pairs is None:
        yield TileGroup(images, num_keys, all_heads, all_rows, workspace, by_query=by_query)
        return
    with_one_bias = [all_heads] if len(row_table) == 1 else [[some] for some in all_heads]
    for rows, some in product(all_rows, with_one_bias):
        of_table = slice(some[0].start, some[-1].stop)
        bias = bias_rows(row_table[of_table], pairs, rows, keys)
        grad_bias = None if grad_row_table is None else bias.new_zeros(some[0].stop - some[0].start, *bias.shape[1:])
        yield TileGroup(images, num_keys, some, [rows], workspace, bias, grad_bias, by_query)
        if grad_row_table is not None and grad_bias is not None:
            add_grad_of_rows(grad_row_table[of_table], pairs, rows, grad_bias)


def rows_per_tile(device: torch.device, entries: int, tiles: int = 1) -> int:
    """Query rows that fill so many tiles, given the entries of a row."""
    return max(1, (tiles * tuning.TILE if on_cpu(device) else tuning.TILE_ELSEWHERE) // entries)


def even_slices(length: int, size: int) -> Iterator[slice]:
    """Slices of at most that size, as even as possible: a last one of few rows costs as many steps as a large one."""
    even = ceil_div(length, ceil_div(length, size))
    for start in range(0, length, even):
        yield slice(start, min(start + even, length))


def bias_rows(row_table: Tensor, pairs: GridPair, rows: slice, keys: int) -> Tensor:
    """Some rows of a bias, ``(H or 1, rows, keys)``."""
    bias = row_table.new_zeros(len(row_table), rows.stop - rows.start, keys)
    pairs.add_rows(bias, row_table, rows)
    return bias


def add_grad_of_rows(grad_row_table: Tensor, pairs: GridPair, rows: slice, grad_bias: Tensor) -> None:
    """Adds the gradient ``(H, rows, keys)`` of some bias rows to that of their table, which may serve all heads."""
    one_for_all = len(grad_row_table) < len(grad_bias)
    pairs.add_to_row_table(grad_row_table, rows, grad_bias.sum(0, keepdim=True) if one_for_all else grad_bias)


def _view(flat: Tensor, shape: Sequence[int]) -> Tensor:
    """The beginning of flat memory, as a tensor."""
    return flat[: prod(shape)].view(shape)


# --- attention without maps ---


def attend_by_tiles(a: Attention) -> Tensor:
    """:func:`~vitplug.attention.fused.fused` by tiles. It keeps only its inputs and its output for backward."""
    biases = (*row_table_of(a), *_query_terms_of(a))
    return _ByTiles.apply(*scaled(pad_keys(a)), *biases, a.num_keys).unflatten(0, a.q.shape[:2])


def row_table_of(a: Attention) -> tuple[Tensor | None, GridPair | None]:
    """The table that bias rows are cut from, and its grids."""
    bias = a.offset_bias
    return (None, None) if bias is None else (bias.row_table(), bias.pairs)


def _query_terms_of(a: Attention) -> tuple[Tensor | None, Tensor | None, TokenGrid | None]:
    """The parts of :class:`QueryTerms`, zeros for queries that are prefix tokens."""
    bias = a.query_bias
    if bias is None:
        return None, None, None
    prefix = (0, 0, bias.pairs.queries.num_prefix, 0)
    rows, columns = (F.pad(t.to(a.q.dtype).flatten(0, 1), prefix) for t in (bias.rows, bias.columns))
    return rows, columns, bias.pairs.keys


def _terms(rows: Tensor | None, columns: Tensor | None, grid: TokenGrid | None) -> QueryTerms | None:
    return None if rows is None or columns is None or grid is None else QueryTerms(rows, columns, grid)


class _ByTiles(torch.autograd.Function):
    """Attention of scaled q ``(G, H, Nq, d)``, k ``(G, H, keys, d)`` and v, with biases by offset and by query."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        row_table: Tensor | None,
        pairs: GridPair | None,
        rows: Tensor | None,
        columns: Tensor | None,
        grid: TokenGrid | None,
        num_keys: int,
    ) -> Tensor:
        bias = TileBias(row_table, pairs, _terms(rows, columns, grid))
        with without_autocast(q.device):
            fuses = q.shape[3] == v.shape[3] and (row_table is not None or bias.by_query is not None)
            out = (_call_by_rows if fuses else _weigh_by_tiles)(q, k, v, bias, num_keys)
        ctx.pairs, ctx.grid, ctx.num_keys = pairs, grid, num_keys
        ctx.save_for_backward(q, k, v, row_table, rows, columns, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple:
        q, k, v, row_table, rows, columns, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_row_table = torch.zeros_like(row_table) if ctx.needs_input_grad[3] else None
        by_query = grad_by_query = grad_rows = grad_columns = None
        if rows is not None:
            grad_rows, grad_columns = torch.empty_like(rows), torch.empty_like(columns)
            by_query = QueryTerms(rows, columns, ctx.grid)
            grad_by_query = QueryTerms(grad_rows, grad_columns, ctx.grid)
        grad_out = grad_out.contiguous()
        inner = (grad_out * out).sum(-1, keepdim=True)
        for group in tile_groups(q, k, row_table, ctx.pairs, ctx.num_keys, grad_row_table, by_query):
            for tile in group.tiles():
                queries, keys = tile
                probs = group.probs(q, k, tile)
                grad_scores = group.grad_scores(probs, v[keys], grad_out[queries], inner[queries], grad_v[keys])
                if grad_by_query is not None:
                    grad_by_query.take(grad_scores, queries)
                torch.bmm(grad_scores, k[keys], out=grad_q[queries])
                grad_k[keys].baddbmm_(grad_scores.mT, q[queries])
        return grad_q, grad_k, grad_v, grad_row_table, None, grad_rows, grad_columns, None, None


def _call_by_rows(q: Tensor, k: Tensor, v: Tensor, bias: TileBias, num_keys: int) -> Tensor:
    """By torch's fused call for one query slice after another, so that only some bias rows exist at a time."""
    out = empty_out(q, v)
    k, v = (t[:, :, :num_keys] for t in (k, v))
    biases = prod(q.shape[:2]) if bias.row_table is None or bias.by_query is not None else len(bias.row_table)
    for rows in even_slices(q.shape[2], max(1, tuning.BIAS_OF_CALL // (biases * num_keys))):
        of_rows = bias.rows(rows, num_keys)
        out[:, :, rows] = F.scaled_dot_product_attention(q[:, :, rows], k, v, attn_mask=of_rows, scale=1.0)
    return out


def _weigh_by_tiles(q: Tensor, k: Tensor, v: Tensor, bias: TileBias, num_keys: int) -> Tensor:
    """By maps, because torch's fused call would form all of them where widths differ."""
    out = empty_out(q, v)
    for group in tile_groups(q, k, bias.row_table, bias.pairs, num_keys, by_query=bias.by_query):
        for queries, keys in group.tiles():
            probs = group.probs(q, k, (queries, keys))
            torch.bmm(probs.to(v.dtype), v[keys], out=out[queries])
    return out


def scaled(a: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled q, k and v, each contiguous ``(G, H, tokens, width)``; G counts images and windows."""
    q, k, v = (t.flatten(0, 1).contiguous() for t in (a.q * a.scale, a.k, a.v))
    return q, k, v


def pad_keys(a: Attention) -> Attention:
    """The same with some keys and values of zeros at the end, where that makes products faster.

    On a CPU it does if the rows of maps begin with a cache line, and not all with lines that map to one cache set.
    """
    if not on_cpu(a.k.device) or a.num_padded:
        return a
    more = -a.num_keys % tuning.CACHE_LINE
    if (a.num_keys + more) % (16 * tuning.CACHE_LINE) == 0:
        more += tuning.CACHE_LINE
    return replace(a, k=F.pad(a.k, (0, 0, 0, more)), v=F.pad(a.v, (0, 0, 0, more)), num_padded=more)


def empty_out(q: Tensor, v: Tensor) -> Tensor:
    """Memory for ``(G, H, Nq, e)``, token by token, so that joining the heads needs no copy."""
    images, heads, tokens, _ = q.shape
    return v.new_empty(images, tokens, heads, v.shape[3]).transpose(1, 2)
