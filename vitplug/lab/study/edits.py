"""Edits of heads, tokens and branches for :meth:`~vitplug.hosting.PluggedModel.edited` and their control.

Shapes of what is edited: heads ``(B, N, H, d)``, attn, mlp and block ``(B, N, D)``; q, k, v and maps
``(B, W, H, N, ...)``. Tokens count from the first prefix token on; inside windows no single tokens can be chosen.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitplug.attention import Site
from vitplug.hosting import Edit


def replaced(
    values: Callable[[Tensor, Site], Tensor], heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None
) -> Edit:
    """An edit that gives some heads, or some tokens, other values; all of them where both are None.

    Args:
        values: Gives the values of the whole tensor, or what broadcasts to it.
        heads, tokens: Their indices. The edit raises a ValueError for one that is not there.
    """
    what, indices, axis, dims = ('tokens', tokens, 1, (3, 4)) if heads is None else ('heads', heads, 2, (4, 5))

    def edit(tensor: Tensor, site: Site) -> Tensor:
        new = values(tensor, site).to(tensor.dtype).expand_as(tensor)
        if indices is None:
            return new
        if tensor.ndim not in dims or not all(0 <= index < tensor.shape[axis] for index in indices):
            raise ValueError(f'{what}={list(indices)}: not in an intermediate {tuple(tensor.shape)}')
        chosen = torch.tensor(indices, device=tensor.device)
        return tensor.index_copy(axis, chosen, new.index_select(axis, chosen))

    return edit


def zero(heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """Zero in place of the values."""
    return replaced(lambda tensor, site: torch.zeros_like(tensor), heads, tokens)


def random_control(edit: Edit, seed: int = 0) -> Edit:
    """A change as large as that of an edit, in a random direction: of each vector along the last axis."""

    def control(tensor: Tensor, site: Site) -> Tensor:
        change = edit(tensor, site) - tensor
        noise = torch.randn(change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        noise = noise / noise.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        return tensor + noise.to(tensor) * change.norm(dim=-1, keepdim=True)

    return control
