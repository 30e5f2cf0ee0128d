"""Attention without sockets of pairs, and the one place that chooses its form.

All forms have the values and gradients of the equation, to rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import QueryBias, expand_all
from .cpu import ByHeads, goes_by_heads
from .inputs import Attention
from .precision import softmax
from .tuning import BIAS_STEP, PADDED_VALUES, WIDTH_OF_CALL, on_cpu


def fused(a: Attention) -> Tensor:
    """``softmax(scale * q @ k^T + biases + mask) @ v``, ``(G, H, Nq, width of v)``: one call of torch, if it serves."""
    q, k, added = with_biases(a)
    if added is None:
        return call(q, k, a.v, None, a.dropout_p, a.scale)
    # Where a bias alone is trained, as in the first block of a frozen backbone, the backward pass of torch's
    # memory-efficient kernel reads memory that is not its own (pytorch #148476).
    trains = added.requires_grad and torch.is_grad_enabled()
    alone = trains and not (q.requires_grad or k.requires_grad or a.v.requires_grad)
    # On a CPU torch's call forms the maps itself where a bias is trained, in more passes.
    if alone or (trains and on_cpu(q.device)):
        if goes_by_heads(q, k, a.v, a.dropout_p):
            return ByHeads.apply(q * a.scale, k, a.v, of_all(added, a), None, False)[0]
        bias, heads = of_all(added, a), q.shape[:2]
        if torch.compiler.is_compiling():  # in a graph for all sizes, whether rows were cut must not be asked
            bias = bias.index_select(-1, torch.arange(a.num_keys, device=q.device))
        q, k, v, bias = (t.flatten(0, 1) for t in (q, k, a.v, bias.expand(*q.shape[:3], -1)))
        maps = softmax(torch.baddbmm(bias, q, k.transpose(1, 2), alpha=a.scale))
        return (F.dropout(maps, a.dropout_p).to(v.dtype) @ v).unflatten(0, heads)
    return call(q, k, a.v, of_all(added, a), a.dropout_p, a.scale)


def with_biases(a: Attention) -> tuple[Tensor, Tensor, Tensor | None]:
    """q and k, wider by biases by query, and what is added to their scores.

    Returns:
        The last is ``(B or 1, W or 1, H or 1, Nq or 1, Nk or more)``, where leading axes of size 1 may be missing;
        columns after the keys make rows of whole words, since torch copies others in every call. None for nothing.
    """
    q, k, biases = a.q, a.k, a.biases
    for bias in biases:
        if isinstance(bias, QueryBias):
            q, k = _widened(q, k, bias, a.scale)
            biases = tuple(other for other in biases if other is not bias)
    # As surplus_of: an exported graph has symbols of sizes.
    pairs = expand_all(biases, BIAS_STEP if isinstance(k.shape[-2], int) else 1)
    total = pairs if a.mask is None else a.mask if pairs is None else a.mask + pairs
    return q, k, None if total is None else total.to(q.dtype)


def of_all(added: Tensor, a: Attention) -> Tensor:
    """What is added to the scores, ``(G or 1, H or 1, Nq or 1, Nk)``; windows may have masks of their own."""
    if added.ndim < 4:
        added = added[(None,) * (4 - added.ndim)]
    else:  # copied image by image, with rows that stay whole words: a GPU's call copies others
        added = added.expand(a.q.shape[0] // a.windows, a.windows, *added.shape[-3:]).flatten(0, 1)
    return added[..., : a.num_keys]


def call(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, dropout_p: float, scale: float) -> Tensor:
    """torch's fused call, which forms all maps on a CPU if values have another width; a few channels are padded."""
    width, more = v.shape[-1], q.shape[-1] - v.shape[-1]
    differs = isinstance(more, int) and more != 0  # not asked where a graph is for all sizes
    pads = differs and 0 < more <= PADDED_VALUES
    if pads:
        v = F.pad(v, (0, more))
    elif differs and added is None and goes_by_heads(q, k, v, dropout_p):
        return ByHeads.apply(q * scale, k, v, None, None, False)[0]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout_p, scale=scale)
    return out[..., :width] if pads else out


def _widened(q: Tensor, k: Tensor, bias: QueryBias, scale: float) -> tuple[Tensor, Tensor]:
    """q and k with channels whose products are the bias."""
    of_queries, of_keys = bias.widening(q.dtype)
    of_queries = of_queries.reshape(*q.shape[:-1], -1)
    more = -(q.shape[-1] + of_keys.shape[-1]) % WIDTH_OF_CALL
    is_open = torch.compiler.is_compiling()  # a graph may be for all sizes, and must not depend on it
    of_queries, of_keys = (F.pad(t, (0, more)) if is_open or more else t for t in (of_queries / scale, of_keys))
    return torch.cat((q, of_queries), dim=-1), torch.cat((k, of_keys.expand(*k.shape[:2], -1, -1)), dim=-1)
