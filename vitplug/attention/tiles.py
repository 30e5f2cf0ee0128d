"""Attention by tiles: some query rows of some heads at a time, which stay in the processor's cache.

Backward forms every tile again, so memory grows with N and not with N^2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import tuning
from .grids import TokenGrid, ceil_div
from .inputs import Attention
from .precision import at_least_float32, softmax, without_autocast
from .tuning import on_cpu

# Indices of a tile's queries, and of its keys, into the first axes of (G, H, N, d).
TileIndex = tuple[tuple[int, slice, slice], tuple[int, slice]]


@dataclass
class TileGroup:
    """Tiles with the same rows of the bias, which are formed once, or all tiles where there is no bias.

    Args:
        images: How many images and windows.
        tokens: How many tokens; keys after these are padding.
        heads: The heads of each tile.
        rows: The query rows of each tile.
        workspace: Memory for two tiles of maps. Every tile uses it again, so it stays in the cache.
        bias: ``(H or 1, rows, keys)``, None for none.
        grad_bias: Takes its gradient, ``(heads of a tile, rows, keys)``; None where it is not wanted.
    """

    images: int
    tokens: int
    heads: Sequence[slice]
    rows: Sequence[slice]
    workspace: tuple[Tensor, Tensor]
    bias: Tensor | None = None
    grad_bias: Tensor | None = None

    def tiles(self) -> Iterator[TileIndex]:
        """The tiles, one after another."""
        for g, heads, rows in product(range(self.images), self.heads, self.rows):
            yield (g, heads, rows), (g, heads)

    def probs(self, q: Tensor, k: Tensor) -> Tensor:
        """Probabilities ``(H, rows, keys)`` of a tile, from scaled q; keys after the tokens get none."""
        logits = self.products(q, k)
        logits[..., self.tokens :] = -torch.inf
        return self.softmax(self.add_bias(logits))

    def add_bias(self, logits: Tensor) -> Tensor:
        """Adds the bias to logits ``(H, rows, keys)``, in place."""
        return logits if self.bias is None else logits.add_(self.bias)

    def softmax(self, logits: Tensor) -> Tensor:
        """The probabilities, in the workspace."""
        return softmax(logits, out=_view(self.workspace[1], logits.shape))

    def grad_scores(self, probs: Tensor, v: Tensor, grad_out: Tensor, inner: Tensor, grad_v: Tensor) -> Tensor:
        """Gradient ``(H, rows, keys)`` of the scores of a tile; those of v and of the bias are added to theirs.

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
    q: Tensor, k: Tensor, row_table: Tensor | None, grid: TokenGrid | None, grad_row_table: Tensor | None = None
) -> Iterator[TileGroup]:
    """All tiles of attention of scaled q ``(G, H, N, d)`` and k ``(G, H, keys, d)``, by groups.

    On a CPU a tile has a head for every thread: a product of one head keeps no two busy, and the maps of more heads
    leave the cache before the next step meets them. What a group adds to the gradient of its bias rows goes to
    ``grad_row_table`` before the next group comes.
    """
    images, heads, tokens, _ = q.shape
    keys, cpu = k.shape[2], on_cpu(q.device)
    together = min(heads, torch.get_num_threads()) if cpu else heads
    size = min(tokens, rows_per_tile(q.device, keys if cpu else heads * keys))
    dtypes = (q.dtype, at_least_float32(q.dtype))
    workspace = tuple(q.new_empty(together * size * keys, dtype=dtype) for dtype in dtypes)
    all_heads, all_rows = list(even_slices(heads, together)), list(even_slices(tokens, size))
    if row_table is None:
        yield TileGroup(images, tokens, all_heads, all_rows, workspace)
        return
    alike = [all_heads] if len(row_table) == 1 else [[some] for some in all_heads]
    for rows, some in product(all_rows, alike):
        of_table = slice(some[0].start, some[-1].stop)
        bias = bias_rows(row_table[of_table], grid, rows, keys)
        grad_bias = None if grad_row_table is None else bias.new_zeros(some[0].stop - some[0].start, *bias.shape[1:])
        yield TileGroup(images, tokens, some, [rows], workspace, bias, grad_bias)
        if grad_row_table is not None:
            add_grad_of_rows(grad_row_table[of_table], grid, rows, grad_bias)


def rows_per_tile(device: torch.device, entries: int, tiles: int = 1) -> int:
    """Query rows of so many tiles, by the entries of a row."""
    return max(1, (tiles * tuning.TILE if on_cpu(device) else tuning.TILE_ELSEWHERE) // entries)


def even_slices(length: int, size: int) -> Iterator[slice]:
    """Slices of at most that size, as even as can be: a last one of few rows costs as many steps as a large one."""
    even = ceil_div(length, ceil_div(length, size))
    for start in range(0, length, even):
        yield slice(start, min(start + even, length))


def bias_rows(row_table: Tensor, grid: TokenGrid, rows: slice, keys: int) -> Tensor:
    """Some rows of a bias ``(H or 1, rows, keys)``."""
    bias = row_table.new_zeros(len(row_table), rows.stop - rows.start, keys)
    grid.add_rows(bias, row_table, rows)
    return bias


def add_grad_of_rows(grad_row_table: Tensor, grid: TokenGrid, rows: slice, grad_bias: Tensor) -> None:
    """Adds the gradient ``(H, rows, N)`` of some bias rows to that of their table, which may serve all heads."""
    one_for_all = len(grad_row_table) < len(grad_bias)
    grid.add_to_row_table(grad_row_table, rows, grad_bias.sum(0, keepdim=True) if one_for_all else grad_bias)


def _view(flat: Tensor, shape: Sequence[int]) -> Tensor:
    """The beginning of flat memory, as a tensor."""
    return flat[: prod(shape)].view(shape)


# --- attention without maps ---


def attend_by_tiles(a: Attention) -> Tensor:
    """:func:`~vitplug.attention.fused.fused` by tiles. Besides what goes in and out it keeps nothing for backward."""
    return _ByTiles.apply(*scaled(pad_keys(a)), a.row_table(), a.grid).unflatten(0, a.q.shape[:2])


class _ByTiles(torch.autograd.Function):
    """Attention of scaled q ``(G, H, N, d)``, k ``(G, H, keys, d)`` and v, with the row table of a bias."""

    @staticmethod
    def forward(ctx, q, k, v, row_table, grid):
        with without_autocast(q.device):
            fuses = row_table is not None and q.shape[3] == v.shape[3]
            out = (_call_by_rows if fuses else _weigh_by_tiles)(q, k, v, row_table, grid)
        ctx.grid = grid
        ctx.save_for_backward(q, k, v, row_table, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, row_table, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_row_table = torch.zeros_like(row_table) if ctx.needs_input_grad[3] else None
        grad_out = grad_out.contiguous()
        inner = (grad_out * out).sum(-1, keepdim=True)
        for group in tile_groups(q, k, row_table, ctx.grid, grad_row_table):
            for queries, keys in group.tiles():
                probs = group.probs(q[queries], k[keys])
                grad_scores = group.grad_scores(probs, v[keys], grad_out[queries], inner[queries], grad_v[keys])
                torch.bmm(grad_scores, k[keys], out=grad_q[queries])
                grad_k[keys].baddbmm_(grad_scores.mT, q[queries])
        return grad_q, grad_k, grad_v, grad_row_table, None


def _call_by_rows(q: Tensor, k: Tensor, v: Tensor, row_table: Tensor, grid: TokenGrid) -> Tensor:
    """By torch's fused call, so that only some rows of the bias are there at a time."""
    out, tokens = empty_out(q, v), q.shape[2]
    k, v = (t[:, :, :tokens] for t in (k, v))
    for rows in even_slices(tokens, max(1, tuning.BIAS_OF_CALL // (len(row_table) * tokens))):
        bias = bias_rows(row_table, grid, rows, tokens)[None]
        out[:, :, rows] = F.scaled_dot_product_attention(q[:, :, rows], k, v, attn_mask=bias, scale=1.0)
    return out


def _weigh_by_tiles(q: Tensor, k: Tensor, v: Tensor, row_table: Tensor | None, grid: TokenGrid | None) -> Tensor:
    """By maps, because torch's fused call would form all of them where widths differ."""
    out = empty_out(q, v)
    for group in tile_groups(q, k, row_table, grid):
        for queries, keys in group.tiles():
            torch.bmm(group.probs(q[queries], k[keys]).to(v.dtype), v[keys], out=out[queries])
    return out


def scaled(a: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """q, scaled, k and v, each contiguous ``(G, H, N, width)``; G counts images and windows."""
    q, k, v = (t.flatten(0, 1).contiguous() for t in (a.q * a.scale, a.k, a.v))
    return q, k, v


def pad_keys(a: Attention) -> Attention:
    """The same with some keys and values of zeros after the tokens', where that makes products faster.

    On a CPU that is so if the rows of maps begin with a cache line, and not all with lines that go to one place in
    the cache.
    """
    if not on_cpu(a.k.device):
        return a
    tokens = a.k.shape[-2]
    more = -tokens % tuning.CACHE_LINE
    if (tokens + more) % (16 * tuning.CACHE_LINE) == 0:
        more += tuning.CACHE_LINE
    return replace(a, k=F.pad(a.k, (0, 0, 0, more)), v=F.pad(a.v, (0, 0, 0, more)))


def empty_out(q: Tensor, v: Tensor) -> Tensor:
    """Memory for ``(G, H, N, e)``, token by token: what joins the heads then needs no copy."""
    images, heads, tokens, _ = q.shape
    return v.new_empty(images, tokens, heads, v.shape[3]).transpose(1, 2)
