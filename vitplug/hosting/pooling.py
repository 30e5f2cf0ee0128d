"""Attention that pools its queries, keys and values on the grid of tokens, as MViTv2 does."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.attention import QueryBias, Site
from vitplug.attention.cache import cached


def on_grid(pool: Callable[[Tensor], Tensor], x_BND: Tensor, site: Site) -> Tensor:
    """Pools the tokens that enter a block, ``(B, N, D)``, as a map ``(B, D, h, w)``; prefix tokens stay."""
    num_prefix = site.layout.num_prefix
    map_BhwD = x_BND[:, num_prefix:].unflatten(1, site.entering_hw)
    pooled_BND = pool(map_BhwD.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1, 2)
    return torch.cat((x_BND[:, :num_prefix], pooled_BND), dim=1) if num_prefix else pooled_BND


def convolve(conv: nn.Conv2d, x_BDhw: Tensor) -> Tensor:
    """A depthwise convolution of the channels of all heads, side by side, by the kernels of one head."""
    weight = conv.weight.repeat(x_BDhw.shape[1] // len(conv.weight), 1, 1, 1)
    return F.conv2d(x_BDhw, weight, None, conv.stride, conv.padding, groups=len(weight))


@cached(128)
def relative_offsets(queries: int, keys: int, device: torch.device) -> Tensor:
    """The offset of every pair along one axis as an index into a table, ``(queries, keys)``."""
    # In float32 and in this order, as mmpretrain and timm have it: where one side is no multiple of the other,
    # rounding decides between two neighbouring offsets.
    per_query, per_key = max(keys / queries, 1.0), max(queries / keys, 1.0)
    q, k = (torch.arange(n, dtype=torch.float32, device=device) for n in (queries, keys))
    return ((q * per_query)[:, None] - k * per_key + (keys - 1) * per_key).long()


def decomposed_bias(q_BWHNd: Tensor, tables: Sequence[Tensor], site: Site) -> QueryBias:
    """The position bias ``q_i . R_h[y_i, y_j] + q_i . R_w[x_i, x_j]``; prefix tokens have none.

    ``tables`` are ``R_h`` and ``R_w`` of all pairs, ``(queries, keys, d)`` along their axis.
    """
    pairs = site.pairs
    q_BWHyxd = q_BWHNd[..., pairs.queries.num_prefix :, :].unflatten(-2, pairs.queries.hw)
    rows, columns = (
        torch.einsum(terms, q_BWHyxd, table).flatten(3, 4)
        for terms, table in zip(('bwhyxd,ykd->bwhyxk', 'bwhyxd,xkd->bwhyxk'), tables, strict=True)
    )
    return QueryBias(rows, columns, pairs)
