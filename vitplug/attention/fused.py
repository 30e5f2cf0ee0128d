"""Attention without maps: one call of torch where it serves, tiles where it would form all N x N maps.

Every form gives what the plain form gives, values and gradients, to rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import is_compiling

from . import tuning
from .inputs import Attention, scores_of
from .precision import at_least_float32, softmax
from .tiles import attend_by_tiles, pad_keys
from .tuning import on_cpu


def fused(a: Attention) -> Tensor:
    """Attention without maps: ``softmax(scale * q @ k^T + bias + mask) @ v``, v of any width.

    Returns:
        ``(B, W, H, N, width of v)``.
    """
    if a.valid is not None:
        return _call_with_valid_keys(a)
    if not on_cpu(a.q.device):
        return call_fused(a)
    # On a CPU torch's fused call forms the maps if widths differ or the bias needs a gradient. Wide queries make
    # forming them twice dear.
    narrow, wide = a.q.shape[-1] < a.v.shape[-1], a.q.shape[-1] > a.v.shape[-1]
    needs_bias_grad = torch.is_grad_enabled() and a.bias is not None and a.bias.requires_grad
    pays = (narrow or needs_bias_grad) and a.goes_by_tiles(tuning.TILES_FROM)
    saves = wide and a.goes_by_tiles(tuning.TILES_TO_SAVE_FROM)
    if pays or saves:
        return attend_by_tiles(a)
    if is_compiling():
        return form_maps(a) if needs_bias_grad else call_fused(a)
    # Not in half precision, whose scores it sums up in float32.
    single = a.q.dtype == at_least_float32(a.q.dtype)
    if wide and a.bias is None and single and a.goes_by_tiles(tuning.TILES_FROM):
        return form_maps(pad_keys(a))
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
