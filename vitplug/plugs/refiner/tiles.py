"""Attention with convolved maps by tiles: some query rows of all heads, and those the kernel reaches beside them."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_weight

from ...attention.grids import GridPair
from ...attention.inputs import Attention
from ...attention.precision import softmax, without_autocast
from ...attention.tiles import add_grad_of_rows, empty_out, even_slices, pad_keys, row_table_of, rows_per_tile, scaled
from .convolution import channels_last


def attend_to_convolved(a: Attention, kernel: Tensor) -> Tensor:
    """Attention with maps convolved over their Nq x Nk plane before they multiply v, by tiles of query rows.

    A tile needs ``k // 2`` further rows on either side.

    Args:
        a: The attention, of one window.
        kernel: ``(H, H or 1, k, k)``: dense over heads or depthwise.

    Returns:
        The output ``(B, 1, H, Nq, d)``.
    """
    return _ToConvolved.apply(*scaled(pad_keys(a)), *row_table_of(a), a.num_keys, kernel).unflatten(0, a.q.shape[:2])


class _ToConvolved(torch.autograd.Function):
    """:func:`attend_to_convolved` of scaled q, k and v ``(B, H, tokens, d)``, with the row table of a bias."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        row_table: Tensor | None,
        pairs: GridPair | None,
        num_keys: int,
        kernel: Tensor,
    ) -> Tensor:
        ctx.pairs, ctx.num_keys = pairs, num_keys
        out = empty_out(q, v)
        with without_autocast(q.device):
            for b, rows, wide, pad in _bands(q, num_keys, kernel):
                maps = _convolved(_band_probs(q[b], k[b], row_table, pairs, num_keys, wide, pad), kernel)
                out[b, :, rows] = maps.to(v.dtype) @ v[b]
        ctx.save_for_backward(q, k, v, row_table, kernel)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple:
        q, k, v, row_table, kernel = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_row_table = torch.zeros_like(row_table) if ctx.needs_input_grad[3] else None
        grad_kernel = torch.zeros_like(kernel)
        backwards = _transposed(kernel)
        for b, rows, wide, pad in _bands(q, ctx.num_keys, kernel):
            probs = _band_probs(q[b], k[b], row_table, ctx.pairs, ctx.num_keys, wide, pad)
            grad_maps = F.pad((grad_out[b, :, wide] @ v[b].mT).to(probs.dtype), (0, 0, *pad))
            inside = slice(kernel.shape[-2] // 2, probs.shape[1] - kernel.shape[-2] // 2)
            grad_v[b] += _convolved(probs, kernel).to(v.dtype).mT @ grad_out[b, :, rows]
            grad_kernel += _kernel_grad(probs, grad_maps[:, inside], kernel)
            probs, grad_probs = probs[:, inside], _convolved(grad_maps, backwards)
            inner = (grad_probs * probs).sum(-1, keepdim=True)
            grad_scores = grad_probs.sub_(inner).mul_(probs).to(q.dtype)
            if grad_row_table is not None:
                add_grad_of_rows(grad_row_table, ctx.pairs, rows, grad_scores)
            grad_q[b, :, rows] = grad_scores @ k[b]
            grad_k[b] += grad_scores.mT @ q[b, :, rows]
        return grad_q, grad_k, grad_v, grad_row_table, None, None, grad_kernel


def _bands(q: Tensor, num_keys: int, kernel: Tensor) -> Iterator[tuple[int, slice, slice, tuple[int, int]]]:
    """Image, rows, the same rows with those the kernel sees beside them, and how many of these are missing."""
    half, (heads, tokens) = kernel.shape[-2] // 2, q.shape[1:3]
    # All heads at once, and the rows beside a tile are computed twice, so tiles are larger.
    size = max(8 * half, rows_per_tile(q.device, heads * num_keys, tiles=2))
    for b in range(len(q)):
        for rows in even_slices(tokens, size):
            low, high = max(0, rows.start - half), min(tokens, rows.stop + half)
            yield b, rows, slice(low, high), (low - rows.start + half, rows.stop + half - high)


def _band_probs(
    q: Tensor,
    k: Tensor,
    row_table: Tensor | None,
    pairs: GridPair | None,
    num_keys: int,
    rows: slice,
    pad: tuple[int, int],
) -> Tensor:
    """Probabilities ``(H, rows, keys)`` of some rows, with rows of zeros where the plane ends."""
    logits = torch.bmm(q[:, rows], k.mT)
    logits[..., num_keys:] = -torch.inf
    if row_table is not None and pairs is not None:
        pairs.add_rows(logits, row_table, rows)
    probs = softmax(logits)
    return F.pad(probs, (0, 0, *pad)) if any(pad) else probs


def _convolved(maps: Tensor, kernel: Tensor) -> Tensor:
    """Maps ``(H, rows + k - 1, N)`` to ``(H, rows, N)``."""
    groups = len(maps) // kernel.shape[1]
    maps, padding = channels_last(maps[None]), (0, kernel.shape[-1] // 2)
    return F.conv2d(maps, kernel.to(maps.dtype), padding=padding, groups=groups)[0].contiguous()


def _transposed(kernel: Tensor) -> Tensor:
    """The kernel of the convolution's transpose."""
    flipped = kernel.flip(-2, -1)
    return flipped if kernel.shape[1] == 1 else flipped.transpose(0, 1)


def _kernel_grad(maps: Tensor, grad: Tensor, kernel: Tensor) -> Tensor:
    """Gradient of the kernel from maps ``(H, rows + k - 1, N)`` and that of the convolved ones ``(H, rows, N)``."""
    groups, half = len(maps) // kernel.shape[1], kernel.shape[-1] // 2
    maps, grad = channels_last(maps[None]), channels_last(grad[None])
    return conv2d_weight(maps, kernel.shape, grad, padding=(0, half), groups=groups)
