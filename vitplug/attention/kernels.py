"""Exact fast forms of attention.

Each gives what the plain form gives, values and gradients, to rounding. The fused call of torch serves where it
can. Where it cannot without forming all N x N maps, attention goes by blocks of query rows that stay in the
processor's cache; backward forms them again, so that memory grows with N.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .grids import TokenGrid
from .precision import without_autocast

# Tokens from which on going by rows pays because the maps of an image no longer stay in the cache.
ROWS_FROM = 512
# Tokens from which on it saves memory that matters, at some cost in time.
SAVE_FROM = 2048
# Entries of one block of rows: 1 MB of float32 in a processor's cache; elsewhere launching is what costs.
BLOCK = 1 << 18
BLOCK_ELSEWHERE = 1 << 26


@dataclass(frozen=True)
class Attention:
    """What one attention is computed from; see :func:`~vitplug.attention.core.attend` for the shapes."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    grid: TokenGrid | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None
    dropout_p: float = 0.0

    def goes_by_rows(self, tokens: int) -> bool:
        """Whether there are that many tokens, and going by rows is possible.

        It is not with masks or dropout, and a graph that is being compiled is torch's to cut.
        """
        possible = self.mask is None and not self.dropout_p and not torch.compiler.is_compiling()
        return possible and self.q.shape[-2] >= tokens


def fused(a: Attention) -> Tensor:
    """Attention without maps: ``softmax(scale * q @ k^T + bias + mask) @ v``, v of any width.

    Returns:
        ``(B, W, H, N, width of v)``.
    """
    # On a CPU torch's fused call forms the maps if widths differ or the bias needs a gradient. Wide queries make
    # forming them twice dear.
    narrow, wide = a.q.shape[-1] < a.v.shape[-1], a.q.shape[-1] > a.v.shape[-1]
    needs_bias_grad = torch.is_grad_enabled() and a.bias is not None and a.bias.requires_grad
    pays = (narrow or needs_bias_grad) and a.goes_by_rows(ROWS_FROM)
    saves = wide and a.goes_by_rows(SAVE_FROM)
    if a.q.device.type != 'cpu':
        return call_fused(a)
    if pays or saves:
        return attend_by_rows(a)
    return form_maps(a) if needs_bias_grad else call_fused(a)


def form_maps(a: Attention) -> Tensor:
    """What torch's fused call does as well where it forms the maps, in fewer passes over them."""
    logits = scores_of(a.q, a.k, a.scale)
    if a.bias is not None:
        logits = logits + a.bias.to(logits.dtype)
    if a.mask is not None:
        logits = logits + a.mask[:, None].to(logits.dtype)
    return F.dropout(softmax(logits), a.dropout_p).to(a.v.dtype) @ a.v


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled dot products ``(..., N, N)`` of ``(..., N, d)``."""
    return (q * scale) @ k.transpose(-2, -1)


def softmax(logits: Tensor) -> Tensor:
    """Probabilities in float32 at least: what is made of them should not start from ones rounded to half precision."""
    return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def call_fused(a: Attention) -> Tensor:
    """torch's fused call. Windows join the batch, or the heads where each window has its own mask."""
    if a.mask is not None:
        both_WHNN = a.mask[:, None] if a.bias is None else a.mask[:, None] + a.bias
        on_cpu = a.q.device.type == 'cpu' and not torch.compiler.is_compiling()
        return call_by_image(a, both_WHNN) if on_cpu else call_windows_as_heads(a, both_WHNN)
    return _call(a, (0, 1), a.bias)


def call_windows_as_heads(a: Attention, additive_WHNN: Tensor) -> Tensor:
    """One call for all images, each window's heads being heads of their own."""
    return _call(a, (1, 2), additive_WHNN.expand(-1, a.q.shape[2], -1, -1).flatten(0, 1))


def _call(a: Attention, dims: tuple[int, int], additive: Tensor | None) -> Tensor:
    q, k, v = (t.flatten(*dims) for t in (a.q, a.k, a.v))
    if additive is not None:
        additive = additive.to(q.dtype)[None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=additive, dropout_p=a.dropout_p, scale=a.scale)
    return out.unflatten(dims[0], a.q.shape[dims[0] : dims[1] + 1])


def call_by_image(a: Attention, additive_WHNN: Tensor) -> Tensor:
    """One call for each image, its windows being the batch: on a CPU copies cost more than calls."""
    additive = additive_WHNN.to(a.q.dtype)
    return torch.stack(
        [
            F.scaled_dot_product_attention(*qkv, attn_mask=additive, dropout_p=a.dropout_p, scale=a.scale)
            for qkv in zip(a.q, a.k, a.v, strict=True)
        ]
    )


def attend_by_rows(a: Attention) -> Tensor:
    """:func:`fused` by blocks of query rows. Besides what goes in and out it keeps nothing for backward."""
    # G counts images and windows.
    q, k, v = (t.flatten(0, 1) for t in (a.q, a.k, a.v))
    bias = None if a.bias is None else a.bias.to(q.dtype)
    return _ByRows.apply(q, k, v, bias, a.scale).unflatten(0, a.q.shape[:2])


class _ByRows(torch.autograd.Function):
    """Attention of q, k ``(G, H, N, d)`` and v ``(G, H, N, e)`` with a bias ``(H or 1, N, N)``.

    All heads of a block go together: a product for each keeps all threads busy.
    """

    @staticmethod
    def forward(ctx, q, k, v, bias, scale):
        ctx.scale = scale
        out = v.new_empty(v.shape)
        with without_autocast(q.device):
            for g, rows in _blocks(q, 2 * _block(q)):
                out[g, :, rows] = _probs(q[g, :, rows], k[g], bias, rows, scale).to(v.dtype) @ v[g]
        ctx.save_for_backward(q, k, v, bias, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, bias, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        # sum_j P_ij dP_ij of every row, from what is at hand.
        inner = (grad_out * out).sum(-1, keepdim=True)
        for g, rows in _blocks(q, 2 * _block(q)):
            probs = _probs(q[g, :, rows], k[g], bias, rows, ctx.scale)
            grad = grad_out[g, :, rows]
            grad_v[g].baddbmm_(probs.to(v.dtype).mT, grad)
            grad_scores = torch.bmm(grad, v[g].mT).sub_(inner[g, :, rows]).to(probs.dtype).mul_(probs).to(q.dtype)
            _add_rows(grad_bias, rows, grad_scores)
            grad_q[g, :, rows] = torch.bmm(grad_scores, k[g])
            grad_k[g].baddbmm_(grad_scores.mT, q[g, :, rows], alpha=ctx.scale)
        return grad_q.mul_(ctx.scale), grad_k, grad_v, grad_bias, None


def _add_rows(grad_bias: Tensor | None, rows: slice, grad_scores: Tensor) -> None:
    """Adds the gradient of some rows of all heads to that of a bias ``(H or 1, N, N)``, if it is wanted."""
    if grad_bias is not None:
        grad_bias[:, rows] += grad_scores.sum(0, keepdim=True) if len(grad_bias) == 1 else grad_scores


def _blocks(q: Tensor, entries: int) -> Iterator[tuple[int, slice]]:
    """Index into the first axis of ``(G, ..., N, d)``, and a block of query rows with about so many entries of maps."""
    tokens = q.shape[-2]
    rows = max(1, entries // prod(q.shape[1:-1]))
    for g in range(len(q)):
        for start in range(0, tokens, rows):
            yield g, slice(start, min(start + rows, tokens))


def _block(q: Tensor) -> int:
    return BLOCK if q.device.type == 'cpu' else BLOCK_ELSEWHERE


def _rows_of(bias: Tensor | None, g: int, rows: slice) -> Tensor | None:
    return None if bias is None else bias[g % len(bias), rows]


def _probs(q: Tensor, k: Tensor, bias: Tensor | None, rows: slice, scale: float) -> Tensor:
    """The probabilities ``(H, rows, N)`` of some query rows, in float32 at least."""
    if bias is None:
        return softmax(torch.bmm(q, k.mT).mul_(scale))
    return softmax(torch.baddbmm(bias[:, rows], q, k.mT, alpha=scale))


def attend_to_blend(a: Attention, before: Tensor | None, alpha: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention with scores blended as residual attention has them, by blocks of query rows::

        scores = alpha * scale * q @ k^T + (1 - alpha) * before
        out    = softmax(scores + bias) @ v

    Only the scores are kept for backward, and they are handed on anyway.

    Args:
        a: The attention.
        before: Handed-over scores ``(B, W, H, N, N)``; None counts as ``alpha = 1``.
        alpha: ``(1,)``; None where there is nothing to blend with.

    Returns:
        The output ``(B, W, H, N, d)`` and the scores ``(B, W, H, N, N)``.
    """
    q, k, v = (t.flatten(0, 2) for t in (a.q, a.k, a.v))
    bias = None if a.bias is None else a.bias.to(q.dtype)
    before = None if before is None else before.to(q.dtype).flatten(0, 2)
    out, scores = _ToBlend.apply(q, k, v, bias, before, alpha, a.scale)
    return out.unflatten(0, a.q.shape[:3]), scores.unflatten(0, a.q.shape[:3])


class _ToBlend(torch.autograd.Function):
    """:func:`attend_to_blend` of ``(G, N, d)``, a bias ``(H or 1, N, N)`` and scores ``(G, N, N)``."""

    @staticmethod
    def forward(ctx, q, k, v, bias, before, alpha, scale):
        ctx.set_materialize_grads(False)
        share = 1.0 if before is None else float(alpha)
        out, scores = v.new_empty(v.shape), q.new_empty(*q.shape[:2], k.shape[1])
        with without_autocast(q.device):
            for g, rows in _blocks(q, _block(q)):
                part = scores[g, rows]
                start = part if before is None else before[g, rows]
                keep = 0.0 if before is None else 1 - share
                torch.addmm(start, q[g, rows], k[g].T, beta=keep, alpha=share * scale, out=part)
                torch.mm(_biased_probs(part, _rows_of(bias, g, rows)).to(v.dtype), v[g], out=out[g, rows])
        ctx.share, ctx.scale, ctx.alpha_dtype = share, scale, alpha.dtype if alpha is not None else None
        ctx.save_for_backward(q, k, v, bias, before, scores, out)
        return out, scores

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out, grad_handed):
        q, k, v, bias, before, scores, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        grad_before = None if before is None else torch.empty_like(before)
        towards_before = 0.0
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        inner = (grad_out * out).sum(-1, keepdim=True)
        for g, rows in _blocks(q, _block(q)):
            probs = _biased_probs(scores[g, rows], _rows_of(bias, g, rows))
            grad = grad_out[g, rows]
            grad_v[g].addmm_(probs.to(v.dtype).T, grad)
            grad_scores = torch.mm(grad, v[g].T).sub_(inner[g, rows]).to(probs.dtype).mul_(probs).to(q.dtype)
            if grad_bias is not None:
                _rows_of(grad_bias, g, rows).add_(grad_scores)
            if grad_handed is not None:
                grad_scores.add_(grad_handed[g, rows])
            if before is not None:
                towards_before += torch.dot(grad_scores.flatten(), before[g, rows].flatten()).double()
                torch.mul(grad_scores, 1 - ctx.share, out=grad_before[g, rows])
            torch.mm(grad_scores, k[g], out=grad_q[g, rows])
            grad_k[g].addmm_(grad_scores.T, q[g, rows], alpha=ctx.share * ctx.scale)
        grad_alpha = None
        if before is not None and ctx.needs_input_grad[5]:
            # The gradient towards the own scores needs no pass of its own: sum_ij g_ij q_i k_j = sum_i q_i (g k)_i.
            towards_own = ctx.scale * (grad_q.double() * q.double()).sum()
            grad_alpha = (towards_own - towards_before).to(ctx.alpha_dtype).view(1)
        return grad_q.mul_(ctx.share * ctx.scale), grad_k, grad_v, grad_bias, grad_before, grad_alpha, None


def _biased_probs(scores: Tensor, bias: Tensor | None) -> Tensor:
    return softmax(scores if bias is None else scores + bias)


def attend_to_convolved(a: Attention, kernel: Tensor) -> Tensor:
    """Attention whose maps are convolved over their N x N plane before they meet v, by blocks of query rows.

    A block of maps needs ``k // 2`` further rows on either side.

    Args:
        a: The attention, of one window.
        kernel: ``(H, H or 1, k, k)``: dense over heads or depthwise.

    Returns:
        The output ``(B, 1, H, N, d)``.
    """
    q, k, v = (t.flatten(0, 1) for t in (a.q, a.k, a.v))
    bias = None if a.bias is None else a.bias.to(q.dtype)
    return _ToConvolved.apply(q, k, v, bias, kernel, a.scale).unflatten(0, a.q.shape[:2])


class _ToConvolved(torch.autograd.Function):
    """:func:`attend_to_convolved` of ``(B, H, N, d)``, with a bias ``(H or 1, N, N)``."""

    @staticmethod
    def forward(ctx, q, k, v, bias, kernel, scale):
        ctx.scale = scale
        out = v.new_empty(v.shape)
        with without_autocast(q.device):
            for b, rows, wide, pad in _bands(q, kernel):
                probs = _band_probs(q[b, :, wide], k[b], bias, wide, scale, pad)
                maps = _convolved(probs, kernel)
                out[b, :, rows] = maps.to(v.dtype) @ v[b]
        ctx.save_for_backward(q, k, v, bias, kernel)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, bias, kernel = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        grad_kernel = torch.zeros_like(kernel)
        backwards = _transposed(kernel)
        for b, rows, wide, pad in _bands(q, kernel):
            probs = _band_probs(q[b, :, wide], k[b], bias, wide, ctx.scale, pad)
            grad_maps = F.pad((grad_out[b, :, wide] @ v[b].mT).to(probs.dtype), (0, 0, *pad))
            inside = slice(kernel.shape[-2] // 2, probs.shape[1] - kernel.shape[-2] // 2)
            grad_v[b] += _convolved(probs, kernel).to(v.dtype).mT @ grad_out[b, :, rows]
            grad_kernel += _kernel_grad(probs, grad_maps[:, inside], kernel)
            probs, grad_probs = probs[:, inside], _convolved(grad_maps, backwards)
            inner = (grad_probs * probs).sum(-1, keepdim=True)
            grad_scores = grad_probs.sub_(inner).mul_(probs).to(q.dtype)
            _add_rows(grad_bias, rows, grad_scores)
            grad_q[b, :, rows] = grad_scores @ k[b]
            grad_k[b] += grad_scores.mT @ q[b, :, rows]
        return grad_q.mul_(ctx.scale), grad_k.mul_(ctx.scale), grad_v, grad_bias, grad_kernel, None


def _bands(q: Tensor, kernel: Tensor) -> Iterator[tuple[int, slice, slice, tuple[int, int]]]:
    """Image, rows, the same rows with those the kernel sees beside them, and how many of these are missing."""
    half, tokens = kernel.shape[-2] // 2, q.shape[-2]
    # The rows beside a block are computed twice, so that blocks are larger here.
    for b, rows in _blocks(q, max(8 * half * prod(q.shape[1:-1]), 4 * _block(q))):
        low, high = max(0, rows.start - half), min(tokens, rows.stop + half)
        yield b, rows, slice(low, high), (low - rows.start + half, rows.stop + half - high)


def _band_probs(q, k, bias, rows: slice, scale: float, pad: tuple[int, int]) -> Tensor:
    """Probabilities ``(H, rows, N)`` with rows of zeros where the plane ends."""
    probs = _probs(q, k, bias, rows, scale)
    return F.pad(probs, (0, 0, *pad)) if any(pad) else probs


def _convolved(maps: Tensor, kernel: Tensor) -> Tensor:
    """Maps ``(H, rows + k - 1, N)`` to ``(H, rows, N)``."""
    groups = len(maps) // kernel.shape[1]
    return F.conv2d(maps[None], kernel.to(maps.dtype), padding=(0, kernel.shape[-1] // 2), groups=groups)[0]


def _transposed(kernel: Tensor) -> Tensor:
    """The kernel of the convolution's transpose."""
    flipped = kernel.flip(-2, -1)
    return flipped if kernel.shape[1] == 1 else flipped.transpose(0, 1)


def _kernel_grad(maps: Tensor, grad: Tensor, kernel: Tensor) -> Tensor:
    """Gradient of the kernel from maps ``(H, rows + k - 1, N)`` and that of the convolved ones ``(H, rows, N)``."""
    groups, half = len(maps) // kernel.shape[1], kernel.shape[-1] // 2
    return torch.nn.grad.conv2d_weight(maps[None], kernel.shape, grad[None], padding=(0, half), groups=groups)
