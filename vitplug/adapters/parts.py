"""What attention of both libraries does: rotations of the grid, Swin's and Swin V2's, by a library's names."""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vitplug.attention import OffsetBias, PairBias, Site

from .arguments import Extras
from .maps import QKV, find


def turned(qkv: QKV, site: Site, turn: Callable[[Tensor], Tensor]) -> QKV:
    """q and k with the tokens of the grid turned; those before it, plugs' included, stay."""
    num_prefix = site.layout.num_prefix
    q, k = (torch.cat((t[..., :num_prefix, :], turn(t[..., num_prefix:, :])), -2).type_as(t) for t in qkv[:2])
    return q, k, qkv[2]


def cosines(scale: str, module: nn.Module, qkv: QKV, site: Site, extras: Extras) -> QKV:
    """q and k of length 1, q times the scale of its head, so that their products are the scores of Swin V2."""
    (q, k, v), scale_H11 = qkv, find(module, scale).clamp(max=log(100)).exp()
    return normalize(q, dim=-1) * scale_H11, normalize(k, dim=-1), v


def table_bias(table: str, block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    """The bias of a table of offsets in a window ``((2 w - 1)^2, H)``."""
    side = 2 * site.layout.window - 1
    return (OffsetBias(find(block, table).T.unflatten(1, (side, side)), site.pairs),)


def continuous_bias(
    attention: str, mlp: str, block: nn.Module, q: Tensor, site: Site, extras: Extras
) -> tuple[PairBias, ...]:
    """The bias that Swin V2's small MLP makes of offsets."""
    module = find(block, attention)
    table_HYX = torch.movedim(find(module, mlp)(module.relative_coords_table)[0], 2, 0)
    return (OffsetBias(16 * table_HYX.sigmoid(), site.pairs),)
