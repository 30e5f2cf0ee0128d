"""Exact fast forms of attention.

Each gives what the plain form gives, values and gradients, to rounding. The fused call of torch serves where it
can. Where it cannot without forming all N x N maps, attention goes by blocks of query rows that stay in the
processor's cache; backward forms them again, so that memory grows with N.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from vitplug.compat import is_compiling

from .blocks import add_rows, bias_rows, block_groups, cut, num_rows
from .grids import TokenGrid
from .precision import at_least_float32, softmax, without_autocast

# Tokens from which on going by rows pays because the maps of an image no longer stay in the cache.
ROWS_FROM = 512
# Tokens from which on it saves memory that matters, at some cost in time.
SAVE_FROM = 2048
# Entries of the rows of a bias that are formed for one fused call: 32 MB of float32.
BIAS_OF_CALL = 1 << 23
# Entries of float32 in a line of a processor's cache.
CACHE_LINE = 16


@dataclass(frozen=True)
class Attention:
    """What one attention is computed from; see :func:`~vitplug.attention.core.attend` for the shapes.

    A position bias comes as its values for all offsets, because what goes by rows never needs all pairs at once.
    ``valid``, the mask ``(B, W, N)`` of the keys that count, goes without bias, mask and dropout.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    grid: TokenGrid | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None
    dropout_p: float = 0.0
    valid: Tensor | None = None

    def expand_bias(self) -> Tensor | None:
        """The position bias ``(H or 1, N, N)`` in the precision of the scores, None where there is none."""
        return None if self.bias is None else self.grid.expand_offsets(self.bias.to(self.q.dtype))

    def goes_by_rows(self, tokens: int) -> bool:
        """Whether there are that many tokens, and going by rows is possible.

        It is not with masks or dropout, and a graph that is being compiled is torch's to cut.
        """
        possible = self.mask is None and not self.dropout_p and not is_compiling()
        return possible and self.q.shape[-2] >= tokens


def fused(a: Attention) -> Tensor:
    """Attention without maps: ``softmax(scale * q @ k^T + bias + mask) @ v``, v of any width.

    Returns:
        ``(B, W, H, N, width of v)``.
    """
    if a.valid is not None:
        return _call_with_valid_keys(a)
    if a.q.device.type != 'cpu':
        return call_fused(a)
    # On a CPU torch's fused call forms the maps if widths differ or the bias needs a gradient. Wide queries make
    # forming them twice dear.
    narrow, wide = a.q.shape[-1] < a.v.shape[-1], a.q.shape[-1] > a.v.shape[-1]
    needs_bias_grad = torch.is_grad_enabled() and a.bias is not None and a.bias.requires_grad
    pays = (narrow or needs_bias_grad) and a.goes_by_rows(ROWS_FROM)
    saves = wide and a.goes_by_rows(SAVE_FROM)
    if pays or saves:
        return attend_by_rows(a)
    if is_compiling():
        return form_maps(a) if needs_bias_grad else call_fused(a)
    # Not in half precision, whose scores it sums up in float32.
    if wide and a.bias is None and a.q.dtype == at_least_float32(a.q.dtype) and a.goes_by_rows(ROWS_FROM):
        return form_maps(_pad_keys(a))
    # Maps of windows are small, and hosts bring few windows at a time where all of them would leave the cache.
    is_windowed = a.q.shape[1] > 1
    return form_maps(a) if needs_bias_grad or is_windowed else call_fused(a)


def form_maps(a: Attention) -> Tensor:
    """What torch's fused call does as well where it forms the maps, in fewer passes over them.

    There may be more keys than tokens, of zeros, where there is neither bias nor mask.
    """
    logits, tokens = scores_of(a.q, a.k, a.scale), a.q.shape[-2]
    if a.bias is not None:
        logits.add_(a.expand_bias())
    if a.mask is not None:
        logits.add_(a.mask[:, None])
    if logits.shape[-1] > tokens:
        # In place by a sum, not by setting entries, whose gradient would be a copy of them all.
        logits.add_(F.pad(logits.new_zeros(tokens), (0, logits.shape[-1] - tokens), value=-torch.inf))
    return F.dropout(softmax(logits), a.dropout_p).to(a.v.dtype) @ a.v


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled dot products ``(..., N, N)`` of ``(..., N, d)``."""
    return (q * scale) @ k.transpose(-2, -1)


def call_fused(a: Attention) -> Tensor:
    """torch's fused call. Windows join the batch, or the heads where each window has its own mask."""
    if a.mask is None:
        return _call(a, (0, 1), a.expand_bias())
    both_WHNN = a.mask[:, None] if a.bias is None else a.mask[:, None] + a.expand_bias()
    return _call(a, (1, 2), both_WHNN.expand(-1, a.q.shape[2], -1, -1).flatten(0, 1))


def _call(a: Attention, dims: tuple[int, int], additive: Tensor | None) -> Tensor:
    q, k, v = (t.flatten(*dims) for t in (a.q, a.k, a.v))
    if additive is not None:
        additive = additive.to(q.dtype)[None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=additive, dropout_p=a.dropout_p, scale=a.scale)
    return out.unflatten(dims[0], a.q.shape[dims[0] : dims[1] + 1])


def _call_with_valid_keys(a: Attention) -> Tensor:
    """torch's fused call over the valid keys. On a CPU it forms all maps if v has another width than q."""
    q, k, v, valid = (t.flatten(0, 1) for t in (a.q, a.k, a.v, a.valid))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=valid[:, None, None], scale=a.scale)
    return out.unflatten(0, a.q.shape[:2])


def attend_by_rows(a: Attention) -> Tensor:
    """:func:`fused` by blocks of query rows. Besides what goes in and out it keeps nothing for backward."""
    return _ByRows.apply(*_scaled(_pad_keys(a)), _strips_of(a), a.grid).unflatten(0, a.q.shape[:2])


class _ByRows(torch.autograd.Function):
    """Attention of scaled q ``(G, H, N, d)``, k ``(G, H, keys, d)`` and v, with the strips of a bias."""

    @staticmethod
    def forward(ctx, q, k, v, strips, grid):
        with without_autocast(q.device):
            fuses = strips is not None and q.shape[3] == v.shape[3]
            out = (_call_by_rows if fuses else _weigh_by_rows)(q, k, v, strips, grid)
        ctx.grid = grid
        ctx.save_for_backward(q, k, v, strips, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, strips, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_strips = torch.zeros_like(strips) if ctx.needs_input_grad[3] else None
        grad_out = grad_out.contiguous()
        inner = (grad_out * out).sum(-1, keepdim=True)
        for group in block_groups(q, k, strips, ctx.grid, grad_strips):
            for here, there in group.blocks():
                probs = group.probs(q[here], k[there])
                grad_scores = group.grad_scores(probs, v[there], grad_out[here], inner[here], grad_v[there])
                torch.bmm(grad_scores, k[there], out=grad_q[here])
                grad_k[there].baddbmm_(grad_scores.mT, q[here])
        return grad_q, grad_k, grad_v, grad_strips, None


def _call_by_rows(q: Tensor, k: Tensor, v: Tensor, strips: Tensor, grid: TokenGrid) -> Tensor:
    """By torch's fused call, so that only some rows of the bias are there at a time."""
    out, tokens = _empty_out(q, v), q.shape[2]
    k, v = (t[:, :, :tokens] for t in (k, v))
    for rows in cut(tokens, max(1, BIAS_OF_CALL // (len(strips) * tokens))):
        bias = bias_rows(strips, grid, rows, tokens)[None]
        out[:, :, rows] = F.scaled_dot_product_attention(q[:, :, rows], k, v, attn_mask=bias, scale=1.0)
    return out


def _weigh_by_rows(q: Tensor, k: Tensor, v: Tensor, strips: Tensor | None, grid: TokenGrid | None) -> Tensor:
    """By maps, because torch's fused call would form all of them where widths differ."""
    out = _empty_out(q, v)
    for group in block_groups(q, k, strips, grid):
        for here, there in group.blocks():
            torch.bmm(group.probs(q[here], k[there]).to(v.dtype), v[there], out=out[here])
    return out


def _scaled(a: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """q, scaled, k and v, each ``(G, H, N, width)`` in one piece; G counts images and windows."""
    q, k, v = (t.flatten(0, 1).contiguous() for t in (a.q * a.scale, a.k, a.v))
    return q, k, v


def _pad_keys(a: Attention) -> Attention:
    """The same with some keys and values of zeros after the tokens', where that makes products faster.

    On a CPU products of maps are up to 1.4 times as fast if the rows of these begin with a cache line, and not all
    with lines that go to one place in the cache.
    """
    if a.k.device.type != 'cpu':
        return a
    tokens = a.k.shape[-2]
    more = -tokens % CACHE_LINE
    if (tokens + more) % (16 * CACHE_LINE) == 0:
        more += CACHE_LINE
    return replace(a, k=F.pad(a.k, (0, 0, 0, more)), v=F.pad(a.v, (0, 0, 0, more)))


def _empty_out(q: Tensor, v: Tensor) -> Tensor:
    """Room for ``(G, H, N, e)``, token by token in memory: what joins the heads then needs no copy."""
    images, heads, tokens, _ = q.shape
    return v.new_empty(images, tokens, heads, v.shape[3]).transpose(1, 2)


def _strips_of(a: Attention) -> Tensor | None:
    """What rows of the bias are cut from, None where there is none."""
    return None if a.bias is None else a.grid.to_strips(a.bias.to(a.q.dtype))


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
    before = None if before is None else before.to(a.q.dtype).flatten(0, 1)
    out, scores = _ToBlend.apply(*_scaled(a), _strips_of(a), before, alpha, a.grid)
    return out.unflatten(0, a.q.shape[:2]), scores.unflatten(0, a.q.shape[:2])


class _ToBlend(torch.autograd.Function):
    """:func:`attend_to_blend` of scaled q, k and v ``(G, H, N, d)``, strips of a bias, and scores ``(G, H, N, N)``."""

    @staticmethod
    def forward(ctx, q, k, v, strips, before, alpha, grid):
        ctx.set_materialize_grads(False)
        share = 1.0 if before is None else float(alpha)
        out, scores = _empty_out(q, v), q.new_empty(*q.shape[:3], k.shape[2])
        with without_autocast(q.device):
            for group in block_groups(q, k, strips, grid):
                for here, there in group.blocks():
                    logits = group.products(q[here], k[there], None if before is None else before[here], share)
                    scores[here] = logits
                    torch.bmm(group.softmax(group.add_bias(logits)).to(v.dtype), v[there], out=out[here])
        ctx.share, ctx.grid = share, grid
        ctx.alpha_dtype = alpha.dtype if alpha is not None else None
        ctx.save_for_backward(q, k, v, strips, before, scores, out)
        return out, scores

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out, grad_handed):
        q, k, v, strips, before, scores, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_strips = torch.zeros_like(strips) if ctx.needs_input_grad[3] else None
        grad_before = None if before is None else torch.empty_like(before)
        towards_before = 0.0
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out.contiguous()
        inner = (grad_out * out).sum(-1, keepdim=True)
        for group in block_groups(q, k, strips, ctx.grid, grad_strips):
            for here, there in group.blocks():
                logits = scores[here] if strips is None else group.add_bias(scores[here].clone())
                probs = group.softmax(logits)
                grad_scores = group.grad_scores(probs, v[there], grad_out[here], inner[here], grad_v[there])
                if grad_handed is not None:
                    grad_scores.add_(grad_handed[here])
                if before is not None:
                    towards_before += torch.dot(grad_scores.flatten(), before[here].flatten()).double()
                    torch.mul(grad_scores, 1 - ctx.share, out=grad_before[here])
                torch.bmm(grad_scores, k[there], out=grad_q[here])
                grad_k[there].baddbmm_(grad_scores.mT, q[here], alpha=ctx.share)
        grad_alpha = None
        if before is not None and ctx.needs_input_grad[5]:
            # The gradient towards the own scores needs no pass of its own: sum_ij g_ij q_i k_j = sum_i q_i (g k)_i.
            towards_own = (grad_q.double() * q.double()).sum()
            grad_alpha = (towards_own - towards_before).to(ctx.alpha_dtype).view(1)
        return grad_q.mul_(ctx.share), grad_k, grad_v, grad_strips, grad_before, grad_alpha, None


def attend_to_convolved(a: Attention, kernel: Tensor) -> Tensor:
    """Attention whose maps are convolved over their N x N plane before they meet v, by blocks of query rows.

    A block of maps needs ``k // 2`` further rows on either side.

    Args:
        a: The attention, of one window.
        kernel: ``(H, H or 1, k, k)``: dense over heads or depthwise.

    Returns:
        The output ``(B, 1, H, N, d)``.
    """
    return _ToConvolved.apply(*_scaled(_pad_keys(a)), _strips_of(a), kernel, a.grid).unflatten(0, a.q.shape[:2])


class _ToConvolved(torch.autograd.Function):
    """:func:`attend_to_convolved` of scaled q, k and v ``(B, H, N, d)``, with the strips of a bias."""

    @staticmethod
    def forward(ctx, q, k, v, strips, kernel, grid):
        ctx.grid = grid
        out = _empty_out(q, v)
        with without_autocast(q.device):
            for b, rows, wide, pad in _bands(q, kernel):
                maps = _convolved(_band_probs(q[b], k[b], strips, grid, wide, pad), kernel)
                out[b, :, rows] = maps.to(v.dtype) @ v[b]
        ctx.save_for_backward(q, k, v, strips, kernel)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, strips, kernel = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_strips = torch.zeros_like(strips) if ctx.needs_input_grad[3] else None
        grad_kernel = torch.zeros_like(kernel)
        backwards = _transposed(kernel)
        for b, rows, wide, pad in _bands(q, kernel):
            probs = _band_probs(q[b], k[b], strips, ctx.grid, wide, pad)
            grad_maps = F.pad((grad_out[b, :, wide] @ v[b].mT).to(probs.dtype), (0, 0, *pad))
            inside = slice(kernel.shape[-2] // 2, probs.shape[1] - kernel.shape[-2] // 2)
            grad_v[b] += _convolved(probs, kernel).to(v.dtype).mT @ grad_out[b, :, rows]
            grad_kernel += _kernel_grad(probs, grad_maps[:, inside], kernel)
            probs, grad_probs = probs[:, inside], _convolved(grad_maps, backwards)
            inner = (grad_probs * probs).sum(-1, keepdim=True)
            grad_scores = grad_probs.sub_(inner).mul_(probs).to(q.dtype)
            if grad_strips is not None:
                add_rows(grad_strips, ctx.grid, rows, grad_scores)
            grad_q[b, :, rows] = grad_scores @ k[b]
            grad_k[b] += grad_scores.mT @ q[b, :, rows]
        return grad_q, grad_k, grad_v, grad_strips, grad_kernel, None


def _bands(q: Tensor, kernel: Tensor) -> Iterator[tuple[int, slice, slice, tuple[int, int]]]:
    """Image, rows, the same rows with those the kernel sees beside them, and how many of these are missing."""
    half, (heads, tokens) = kernel.shape[-2] // 2, q.shape[1:3]
    # All heads at once, and the rows beside a block are computed twice: blocks are larger here.
    size = max(8 * half, num_rows(q.device, heads * tokens, blocks=2))
    for b in range(len(q)):
        for rows in cut(tokens, size):
            low, high = max(0, rows.start - half), min(tokens, rows.stop + half)
            yield b, rows, slice(low, high), (low - rows.start + half, rows.stop + half - high)


def _band_probs(q, k, strips: Tensor | None, grid: TokenGrid | None, rows: slice, pad: tuple[int, int]) -> Tensor:
    """Probabilities ``(H, rows, N)`` of some rows, with rows of zeros where the plane ends."""
    logits = torch.bmm(q[:, rows], k.mT)
    logits[..., q.shape[1] :] = -torch.inf
    if strips is not None:
        grid.add_strips(logits, strips, rows)
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
    return torch.nn.grad.conv2d_weight(maps, kernel.shape, grad, padding=(0, half), groups=groups)


def channels_last(maps: Tensor) -> Tensor:
    """Maps ``(B, H, rows, N)`` in the layout in which a CPU convolves few channels fastest, up to three times so."""
    return maps.contiguous(memory_format=torch.channels_last) if maps.device.type == 'cpu' else maps
