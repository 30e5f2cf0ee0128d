"""Edits of heads, tokens and branches for :meth:`~vitplug.hosting.PluggedModel.edited` and their control.

Shapes of what is edited: heads ``(B, N, H, d)``, attn, mlp and block ``(B, N, D)``; q, k, v and maps
``(B, W, H, N, ...)``. Tokens count from the first prefix token on; inside windows no single tokens can be chosen.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from vitplug.attention import Site
from vitplug.hosting import Edit


def replaced(
    values: Callable[[Tensor, Site], Tensor], heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None
) -> Edit:
    """An edit that gives some heads and tokens other values; all of them where they are None.

    Args:
        values: Gives the values of the whole tensor, or what broadcasts to it.
        heads, tokens: Their indices. The edit raises a ValueError for one that is not there.
    """

    def edit(tensor: Tensor, site: Site) -> Tensor:
        chosen = torch.ones((1,) * tensor.ndim, dtype=torch.bool, device=tensor.device)
        for what, indices, axis, dims in (('heads', heads, 2, (4, 5)), ('tokens', tokens, 1, (3, 4))):
            if indices is None:
                continue
            count = tensor.shape[axis] if tensor.ndim in dims else 0
            if not all(0 <= index < count for index in indices):
                there = f'there are {what} 0 to {count - 1}' if count else f'there are no {what} to choose'
                raise ValueError(f'{what}={list(indices)}: {there} in an intermediate {tuple(tensor.shape)}')
            of_axis = torch.zeros(count, dtype=torch.bool, device=tensor.device)
            of_axis[list(indices)] = True
            chosen = chosen & of_axis.reshape([-1 if other == axis else 1 for other in range(tensor.ndim)])
        return torch.where(chosen, values(tensor, site).to(tensor.dtype), tensor)

    return edit


def zero(heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """Zero in place of the values."""
    return replaced(lambda tensor, site: torch.zeros_like(tensor), heads, tokens)


class TokenMeans:
    """Means over images of a token intermediate, such as ``heads``: of each prefix token, and of all patches together.

    They fit images of any size. For a mean that is held out, leave the edited image out of :meth:`joined`.

    Args:
        tensor: ``(B, N, ...)`` of some images.
        num_prefix: Prefix tokens among N.
    """

    def __init__(self, tensor: Tensor, num_prefix: int):
        parts = [*(tensor[:, i : i + 1] for i in range(num_prefix)), tensor[:, num_prefix:]]
        self.sums = [(part.double().sum((0, 1)), part.shape[0] * part.shape[1]) for part in parts]

    @classmethod
    def joined(cls, parts: Iterable['TokenMeans']) -> 'TokenMeans':
        """The means of several, each of other images."""
        means = cls.__new__(cls)
        of_parts = zip(*(part.sums for part in parts), strict=True)
        means.sums = [tuple(map(sum, zip(*some, strict=True))) for some in of_parts]
        return means

    def values(self, tensor: Tensor, site: Site) -> Tensor:
        """The means in the places of the tokens ``(1, N, ...)``."""
        *prefix, patch = (total / count for total, count in self.sums)
        patches = patch.expand(tensor.shape[1] - site.layout.num_prefix, *patch.shape)
        return torch.cat((*(one[None] for one in prefix), patches))[None].to(tensor)


def random_control(edit: Edit, seed: int = 0) -> Edit:
    """A change as large as that of an edit, in a random direction: of each vector along the last axis."""

    def control(tensor: Tensor, site: Site) -> Tensor:
        change = edit(tensor, site) - tensor
        noise = torch.randn(change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        noise = noise / noise.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        return tensor + noise.to(tensor) * change.norm(dim=-1, keepdim=True)

    return control
