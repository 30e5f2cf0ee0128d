"""Blocks of query rows, by which attention goes where all its maps would leave the processor's cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from .grids import TokenGrid, ceil_div
from .precision import at_least_float32, softmax

# Entries of one block of rows of one head: 2 MB of float32 near a processor's cores; elsewhere, where launching is what
# costs, of all heads.
BLOCK = 1 << 19
BLOCK_ELSEWHERE = 1 << 26


def num_rows(device: torch.device, entries: int, blocks: int = 1) -> int:
    """Query rows of so many blocks, by the entries of a row."""
    return max(1, (blocks * BLOCK if device.type == 'cpu' else BLOCK_ELSEWHERE) // entries)


@dataclass
class Group:
    """Blocks of maps with the same rows of the bias, which are formed once, or all blocks where there is no bias.

    Args:
        images: How many images and windows.
        tokens: How many tokens; keys after these are padding.
        heads: The heads of the blocks.
        rows: Their query rows.
        rooms: Memory for two blocks of maps. The next block uses it again: it lies in the cache then.
        bias: ``(H or 1, rows, keys)``, None for none.
        grad_bias: Takes its gradient, ``(heads of a block, rows, keys)``; None where it is not wanted.
    """

    images: int
    tokens: int
    heads: Sequence[slice]
    rows: Sequence[slice]
    rooms: tuple[Tensor, Tensor]
    bias: Tensor | None = None
    grad_bias: Tensor | None = None

    def blocks(self) -> Iterator[tuple[tuple[int, slice, slice], tuple[int, slice]]]:
        """Indices of a block's queries, and of its keys, into the first axes of ``(G, H, N, d)``."""
        for g, heads, rows in product(range(self.images), self.heads, self.rows):
            yield (g, heads, rows), (g, heads)

    def probs(self, q: Tensor, k: Tensor) -> Tensor:
        """Probabilities ``(H, rows, keys)`` of a block, from scaled q; keys after the tokens get none."""
        logits = self.products(q, k)
        logits[..., self.tokens :] = -torch.inf
        return self.softmax(self.add_bias(logits))

    def add_bias(self, logits: Tensor) -> Tensor:
        """Adds the bias to logits ``(H, rows, keys)``, in place."""
        return logits if self.bias is None else logits.add_(self.bias)

    def softmax(self, logits: Tensor) -> Tensor:
        """The probabilities, in memory of the group."""
        return softmax(logits, out=_view(self.rooms[1], logits.shape))

    def grad_scores(self, probs: Tensor, v: Tensor, grad_out: Tensor, inner: Tensor, grad_v: Tensor) -> Tensor:
        """Gradient ``(H, rows, keys)`` of the scores of a block; those of v and of the bias are added to theirs.

        ``inner`` is ``sum_j P_ij dP_ij`` of every row, which is the product of the output with its gradient.
        """
        grad_v.baddbmm_(probs.to(v.dtype).mT, grad_out)
        grad_scores = self.products(grad_out, v).sub_(inner).mul_(probs)
        if self.grad_bias is not None:
            self.grad_bias[: len(grad_scores)].add_(grad_scores)
        return grad_scores

    def products(self, q: Tensor, k: Tensor, before: Tensor | None = None, share: float = 1.0) -> Tensor:
        """``q @ k^T``, or its share beside what was before, in memory of the group."""
        room = _view(self.rooms[0], (*q.shape[:2], k.shape[1]))
        if before is None:
            return torch.bmm(q, k.mT, out=room)
        return torch.mul(before, 1 - share, out=room).baddbmm_(q, k.mT, alpha=share)


def block_groups(
    q: Tensor, k: Tensor, strips: Tensor | None, grid: TokenGrid | None, grad_strips: Tensor | None = None
) -> Iterator[Group]:
    """All blocks of attention of scaled q ``(G, H, N, d)`` and k ``(G, H, keys, d)``, by groups.

    On a CPU a block has a head for every thread: a product of one head keeps no two busy, and the maps of more heads
    leave the cache before the next step meets them. What a group adds to the gradient of its rows of the bias goes
    to ``grad_strips`` before the next group comes.
    """
    images, heads, tokens, _ = q.shape
    on_cpu, keys = q.device.type == 'cpu', k.shape[2]
    together = min(heads, torch.get_num_threads()) if on_cpu else heads
    size = min(tokens, num_rows(q.device, keys if on_cpu else heads * keys))
    rooms = tuple(q.new_empty(together * size * keys, dtype=dtype) for dtype in (q.dtype, at_least_float32(q.dtype)))
    all_heads, all_rows = list(cut(heads, together)), list(cut(tokens, size))
    if strips is None:
        yield Group(images, tokens, all_heads, all_rows, rooms)
        return
    alike = [all_heads] if len(strips) == 1 else [[some] for some in all_heads]
    for rows, some in product(all_rows, alike):
        those = slice(some[0].start, some[-1].stop)
        bias = bias_rows(strips[those], grid, rows, keys)
        grad_bias = None if grad_strips is None else bias.new_zeros(some[0].stop - some[0].start, *bias.shape[1:])
        yield Group(images, tokens, some, [rows], rooms, bias, grad_bias)
        if grad_strips is not None:
            add_rows(grad_strips[those], grid, rows, grad_bias)


def cut(length: int, size: int) -> Iterator[slice]:
    """Pieces of at most that size, as even as can be: a last one of few rows costs as many steps as a large one."""
    even = ceil_div(length, ceil_div(length, size))
    for start in range(0, length, even):
        yield slice(start, min(start + even, length))


def _view(room: Tensor, shape: Sequence[int]) -> Tensor:
    """The beginning of flat memory, as a tensor."""
    return room[: prod(shape)].view(shape)


def bias_rows(strips: Tensor, grid: TokenGrid, rows: slice, keys: int) -> Tensor:
    """Some rows of a bias ``(H or 1, rows, keys)``."""
    bias = strips.new_zeros(len(strips), rows.stop - rows.start, keys)
    grid.add_strips(bias, strips, rows)
    return bias


def add_rows(grad_strips: Tensor, grid: TokenGrid, rows: slice, grad_bias: Tensor) -> None:
    """Adds the gradient ``(H, rows, N)`` of some rows of the bias to that of its strips, which may serve all heads."""
    one_for_all = len(grad_strips) < len(grad_bias)
    grid.add_to_strips(grad_strips, rows, grad_bias.sum(0, keepdim=True) if one_for_all else grad_bias)
