"""FlexAttention for long attention with a bias by offset: no bias of all pairs is written, nor its gradient.

Opt-in by :data:`~vitplug.attention.tuning.FLEX_FROM`. The kernel adds the bias of each pair to its score, one entry of
the flat table. Only torch's Triton kernel is used: its FLASH backend takes no bias that is trained.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._guards import detect_fake_mode

from vitplug.compat import is_exporting

from . import tuning
from .bias import OffsetBias
from .inputs import Attention
from .precision import at_least_float32

try:
    from torch.nn.attention.flex_attention import FlexKernelOptions, flex_attention

    HAS_FLEX = 'BACKEND' in FlexKernelOptions.__annotations__
except ImportError:
    HAS_FLEX = False


def wants_flex(a: Attention) -> bool:
    """Whether the user chose FlexAttention for this attention: long, with a bias by offset."""
    if tuning.FLEX_FROM is None or a.offset_bias is None:
        return False
    return a.q.shape[-2] * a.num_keys >= tuning.FLEX_FROM**2


def attend_by_flex(a: Attention) -> Tensor:
    """:func:`~vitplug.attention.fused.fused` by FlexAttention.

    Raises:
        ValueError: If FlexAttention cannot compute this attention.
    """
    (bias,) = (bias for bias in a.biases if isinstance(bias, OffsetBias))
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in (a.q, a.k, a.v, bias.table))
    _refuse_if(not HAS_FLEX, 'the installed torch has no flex_attention with a choice of BACKEND: install torch 2.12')
    _refuse_if(a.dropout_p > 0, 'FlexAttention has no dropout of the maps: set attn_drop_rate=0')
    _refuse_if(a.mask is not None, 'masks and biases of all pairs are not for FlexAttention')
    _refuse_if(not a.has_offset_bias_only, 'a bias by query, as MViT has it, is not for FlexAttention')
    _refuse_if(trains and a.q.device.type == 'cpu', 'FlexAttention has no backward pass on a CPU')
    _refuse_if(is_exporting(), 'FlexAttention cannot be exported')
    a = a.unpadded()
    q, k, v = (t.to(a.v.dtype).flatten(0, 1) for t in (a.q, a.k, a.v))
    options = {'BACKEND': 'TRITON'}
    out = _kernel(q.device)(q, k, v, _adder(bias), scale=a.scale, kernel_options=options)
    return out.unflatten(0, a.q.shape[:2])


def refuse_maps(a: Attention) -> None:
    """Refuses attention with maps where the user chose FlexAttention.

    Raises:
        ValueError: If FlexAttention was chosen for this attention.
    """
    _refuse_if(wants_flex(a), 'a plug needs the attention maps, which FlexAttention does not form')


def _refuse_if(cannot: bool, reason: str) -> None:
    if cannot:
        raise ValueError(
            f'VITPLUG_FLEX_FROM={tuning.FLEX_FROM}: {reason}. Unset VITPLUG_FLEX_FROM for this model, or set it above '
            'its number of tokens'
        )


def _kernel(device: torch.device) -> Callable[..., Tensor]:
    # Without the compiler torch forms the scores: right for a CPU's comparisons, and all that fake tensors need.
    return (
        flex_attention if torch.compiler.is_compiling() or device.type == 'cpu' or detect_fake_mode() else _compiled()
    )


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)


def _adder(bias: OffsetBias) -> Callable[..., Tensor]:
    """Adds the bias of one pair to its score. A last entry of each head, 0, is for pairs with a prefix token."""
    table_Hyx, pairs = bias.table, bias.pairs
    # Numbers, not grids, whose methods the compiler would trace.
    (_, width), (key_height, key_width) = pairs.queries.hw, pairs.keys.hw
    query_prefix, key_prefix, columns = pairs.queries.num_prefix, pairs.keys.num_prefix, table_Hyx.shape[2]
    flat = F.pad(table_Hyx.to(at_least_float32(table_Hyx.dtype)).flatten(1), (0, 1))
    entries = flat.shape[1]
    of_head = entries if len(flat) > 1 else 0
    flat = flat.flatten()

    def add(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query, key = query - query_prefix, key - key_prefix
        y, x = query // width - key // key_width + key_height - 1, query % width - key % key_width + key_width - 1
        on_grid = (query >= 0) & (key >= 0)
        return score + flat[head * of_head + torch.where(on_grid, y * columns + x, entries - 1)]

    return add
