"""Edits of heads and tokens for :meth:`~vitplug.hosting.PluggedModel.edited`, and their control.

Shapes of what is edited: heads ``(B, N, H, d)``, attn, mlp and block ``(B, N, D)``; q, k, v and maps
``(B, W, H, N, ...)``. Tokens count from the first prefix token on; inside windows no single tokens can be chosen.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitplug.attention import Site
from vitplug.hosting import Edit


def zero(heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """Zero in place of some heads, or of some tokens, by their indices; of all values where both are None.

    The edit raises a ValueError for an index that is not there.
    """
    what, indices, axis, dims = ('tokens', tokens, 1, (3, 4)) if heads is None else ('heads', heads, 2, (4, 5))

    def edit(tensor: Tensor, site: Site) -> Tensor:
        if indices is None:
            return torch.zeros_like(tensor)
        if tensor.ndim not in dims or not all(0 <= index < tensor.shape[axis] for index in indices):
            raise ValueError(f'{what}={list(indices)}: not in an intermediate {tuple(tensor.shape)}')
        return tensor.index_fill(axis, torch.tensor(indices, device=tensor.device), 0)

    return edit


def random_control(edit: Edit, seed: int = 0) -> Edit:
    """A change as large as that of an edit, in a random direction: of each vector along the last axis."""

    def control(tensor: Tensor, site: Site) -> Tensor:
        change = edit(tensor, site) - tensor
        noise = torch.randn(change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        noise = noise / noise.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        return tensor + noise.to(tensor) * change.norm(dim=-1, keepdim=True)

    return control
