"""Stock projections in a block whose heads plugs have changed."""

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor

from vitplug.plugs import BlockShape


def fit_heads(attention: Any, state_dict: MutableMapping[str, Any], prefix: str, *_: Any) -> None:
    """Makes a stock checkpoint's projections fit the heads that plugs have made of the host's.

    q, k and v rows of removed heads are left out, and so are their columns of tables; heads that the checkpoint lacks
    keep their present weights; where a head has several outputs, its columns in the projection are divided among them.

    ``attention`` has ``shape``, ``embed_dims``, ``projected_heads`` and ``proj``, and perhaps ``head_tables``, names of
    parameters with a column for each head; a projection may be None. The state dict is changed.
    """
    shape, dims = attention.shape, attention.embed_dims
    for projection, heads in attention.projected_heads.items():
        own_ones = getattr(attention, projection)
        if own_ones is None:
            for key in [key for key in state_dict if key.startswith(f'{prefix}{projection}.')]:
                del state_dict[key]
            continue
        for name, own in own_ones.named_parameters():
            stock = state_dict.get(f'{prefix}{projection}.{name}')
            if stock is not None and len(stock) == len(heads) * dims != len(own):
                parts = zip(own.split([n * shape.head_dims for n in heads]), stock.chunk(len(heads)), strict=True)
                state_dict[f'{prefix}{projection}.{name}'] = torch.cat([overlay(*part, dim=0) for part in parts])
    for name in getattr(attention, 'head_tables', ()):
        table = state_dict.get(f'{prefix}{name}')
        if table is not None and not shape.map_heads:
            del state_dict[f'{prefix}{name}']
        elif table is not None and table.shape[1] == dims // shape.head_dims:
            state_dict[f'{prefix}{name}'] = table[:, : shape.map_heads]
    stock = state_dict.get(f'{prefix}proj.weight')
    if stock is not None and stock.shape[1] == dims != attention.proj.weight.shape[1]:
        spread = _spread_columns(stock, shape)
        state_dict[f'{prefix}proj.weight'] = overlay(attention.proj.weight, spread, dim=1)


def overlay(own: Tensor, stock: Tensor, dim: int) -> Tensor:
    """The first entries from ``stock``, the rest, if any, from ``own``; as long as ``own``."""
    size = min(own.shape[dim], stock.shape[dim])
    more = own.detach().narrow(dim, size, own.shape[dim] - size)
    return torch.cat((stock.narrow(dim, 0, size), more.to(stock)), dim)


def _spread_columns(weight: Tensor, shape: BlockShape) -> Tensor:
    """Projection columns of H heads shared out among the outputs of each head that has a map."""
    if shape.repeats == 1:
        return weight
    mapped = (shape.out_heads - shape.value_heads) // (shape.repeats - 1)
    columns = weight.unflatten(1, (-1, shape.head_dims))
    shared = columns[:, :mapped].repeat_interleave(shape.repeats, dim=1) / shape.repeats
    return torch.cat((shared, columns[:, mapped:]), dim=1).flatten(1)
