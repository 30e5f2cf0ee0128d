"""Attention without maps: one call of torch where it serves, tiles where torch would form all Nq x Nk maps.

All forms have the values and gradients of the plain form, to rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import replace

from . import tuning
from .flex import attend_by_flex, wants_flex
from .inputs import Attention, scores_of
from .precision import at_least_float32, softmax
from .tiles import attend_by_tiles, pad_keys
from .tuning import on_cpu


def fused(a: Attention) -> Tensor:
    """Attention without maps: ``softmax(scale * q @ k^T + biases + mask) @ v``, v of any width.

    Returns:
        ``(B, W, H, Nq, width of v)``.
    """
    if a.valid is not None:
        return _call_with_valid_keys(a, a.valid)
    a = a.folded(widen=False)
    if wants_flex(a):
        return attend_by_flex(a)
    width, more = a.v.shape[-1], a.q.shape[-1] - a.v.shape[-1]
    if 0 < more <= tuning.PADDED_VALUES:
        # Values as wide as q, so that one call serves.
        return fused(replace(a, v=F.pad(a.v, (0, more))))[..., :width]
    trains_bias = torch.is_grad_enabled() and any(t.requires_grad for t in _additives(a))
    if not on_cpu(a.q.device):
        a = a.folded()
        # The first block of a frozen backbone whose biases are trained: the backward pass of torch's memory-efficient
        # kernel then reads memory that is not its own (pytorch #148476).
        alone = trains_bias and not any(t.requires_grad for t in (a.q, a.k, a.v))
        return form_maps(a) if alone else call_fused(a)
    # On a CPU torch's fused call forms the maps if widths differ or the bias needs a gradient. Wide queries make
    # forming them twice dear.
    narrow, wide = a.width < a.v.shape[-1], a.width > a.v.shape[-1]
    pays = (narrow or trains_bias) and a.goes_by_tiles(tuning.TILES_FROM)
    saves = wide and a.goes_by_tiles(tuning.TILES_TO_SAVE_FROM)
    if pays or saves:
        return attend_by_tiles(a)
    a = a.folded()
    if torch.compiler.is_compiling():
        return form_maps(a) if trains_bias else call_fused(a)
    # Half precision is left to torch, which sums its scores up in float32.
    single = a.q.dtype == at_least_float32(a.q.dtype)
    if wide and not a.biases and single and a.goes_by_tiles(tuning.TILES_FROM):
        return form_maps(pad_keys(a))
    # Maps of windows are small; hosts pass a few windows at a time where all of them would leave the cache.
    is_windowed = a.q.shape[1] > 1
    return form_maps(a) if trains_bias or is_windowed else call_fused(a)


def _additives(a: Attention) -> list[Tensor]:
    """The tensors that are added to the scores."""
    bias = a.offset_bias
    return [t for t in (None if bias is None else bias.table, a.mask) if t is not None]


def form_maps(a: Attention) -> Tensor:
    """Attention with explicit maps; replaces the maths fallback of torch's fused call with fewer passes over them."""
    if a.biases or a.mask is not None:
        # These have no entries for padded keys.
        a = a.unpadded()
    logits, bias = scores_of(a.q, a.k, a.scale), a.offset_bias
    if bias is not None:
        logits.add_(bias.expand())
    if a.mask is not None:
        logits.add_(a.mask)
    if a.num_padded:
        # In place by a sum, not by setting entries, whose gradient would be a copy of them all.
        logits.add_(F.pad(logits.new_zeros(a.num_keys), (0, a.num_padded), value=-torch.inf))
    return F.dropout(softmax(logits), a.dropout_p).to(a.v.dtype) @ a.v


def call_fused(a: Attention) -> Tensor:
    """torch's fused call. Windows join the batch, or the heads where each window has its own mask."""
    a, offsets = a.unpadded(), a.offset_bias
    step = 1 if on_cpu(a.q.device) else tuning.BIAS_STEP
    bias = None if offsets is None else offsets.expand(step)
    if a.mask is None:
        return _call(a, (0, 1), bias)
    # Converted before it is repeated for images and heads, which would copy it as often.
    both = (_widened(a.mask, step) if bias is None else _widened(a.mask, step) + bias).to(a.q.dtype)
    if both.shape[0] == 1:
        return _call(a, (1, 2), both[0].expand(*a.q.shape[1:3], -1, -1).flatten(0, 1))
    return _call(a, (0, 1), both.expand(*a.q.shape[:2], -1, -1, -1).flatten(0, 1))


def _widened(mask: Tensor, step: int) -> Tensor:
    """The mask with zeros for surplus keys."""
    surplus = -mask.shape[-1] % step
    return F.pad(mask, (0, surplus)) if surplus else mask


def _call(a: Attention, dims: tuple[int, int], additive: Tensor | None) -> Tensor:
    """torch's call; the additive may have values for surplus keys."""
    q, k, v = (t.flatten(*dims) for t in (a.q, a.k, a.v))
    if additive is not None:
        additive = additive.to(q.dtype)[..., : a.num_keys]
        additive = additive[None] if additive.ndim == 3 else additive
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=additive, dropout_p=a.dropout_p, scale=a.scale)
    return out.unflatten(dims[0], a.q.shape[dims[0] : dims[1] + 1])


def _call_with_valid_keys(a: Attention, valid: Tensor) -> Tensor:
    """torch's fused call over the valid keys. On a CPU it forms all maps if v has another width than q."""
    q, k, v, valid = (t.flatten(0, 1) for t in (a.q, a.k, a.v, valid))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=valid[:, None, None], scale=a.scale)
    return out.unflatten(0, a.q.shape[:2])
