"""Edits of heads, tokens and blocks for :meth:`~vitplug.hosting.PluggedModel.edited`, their control and their effect.

Shapes of what is edited: q, k, v and maps ``(B, W, H, N, ...)``, heads ``(B, N, H, d)``, attn, mlp and block
``(B, N, D)``. Tokens count from the first prefix token on; inside windows no single tokens can be chosen.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from vitplug.attention import Site, uniform_maps
from vitplug.attention.site import without_hidden
from vitplug.hosting import Edit

#: Keys that a map can be redirected to by name.
SELF, ALL = 'self', 'all'


def replaced(
    values: Callable[[Tensor, Site], Tensor], heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None
) -> Edit:
    """An edit that gives some heads and tokens other values; all of them where they are None.

    Args:
        values: Gives the values of the whole tensor, or what broadcasts to it.
        heads, tokens: Their indices.

    Returns:
        The edit. It raises a ValueError for a head or token that is not there.
    """

    def edit(tensor: Tensor, site: Site) -> Tensor:
        chosen = torch.ones((1,) * tensor.ndim, dtype=torch.bool, device=tensor.device)
        axes = {'heads': 2 if tensor.ndim in (4, 5) else None, 'tokens': 1 if tensor.ndim != 5 else None}
        for what, indices in (('heads', heads), ('tokens', tokens)):
            if indices is not None:
                chosen = chosen & _chosen(what, indices, axes[what], tensor)
        return torch.where(chosen, values(tensor, site).to(tensor.dtype), tensor)

    return edit


def _chosen(what: str, indices: Sequence[int], axis: int | None, tensor: Tensor) -> Tensor:
    """True at some indices of an axis; shape 1 along all others."""
    if axis is None:
        raise ValueError(
            f'{what}={list(indices)}: an intermediate of shape {tuple(tensor.shape)} has no {what} to choose'
        )
    count = tensor.shape[axis]
    if not all(0 <= index < count for index in indices):
        raise ValueError(f'{what}={list(indices)}: there are {what} 0 to {count - 1}')
    chosen = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    chosen[list(indices)] = True
    return chosen.reshape([-1 if other == axis else 1 for other in range(tensor.ndim)])


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
        self._sums = [part.double().sum((0, 1)) for part in parts]
        self._counts = [part.shape[0] * part.shape[1] for part in parts]

    @classmethod
    def joined(cls, parts: Iterable['TokenMeans']) -> 'TokenMeans':
        """The means of several, each of other images."""
        means, parts = cls.__new__(cls), list(parts)
        means._sums = [sum(sums) for sums in zip(*(part._sums for part in parts), strict=True)]
        means._counts = [sum(counts) for counts in zip(*(part._counts for part in parts), strict=True)]
        return means

    def values(self, tensor: Tensor, site: Site) -> Tensor:
        """The means in the places of the tokens ``(1, N, ...)``."""
        *prefix, patch = (total / count for total, count in zip(self._sums, self._counts, strict=True))
        patches = patch.expand(tensor.shape[1] - site.layout.num_prefix, *patch.shape)
        return torch.cat((*(one[None] for one in prefix), patches))[None].to(tensor)


def mean(means: TokenMeans, heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """The mean over other images in place of the values."""
    return replaced(means.values, heads, tokens)


def shuffled(seed: int = 0, heads: Sequence[int] | None = None) -> Edit:
    """The values of the patches in another order, the same one in each image; prefix tokens keep theirs."""

    def values(tensor: Tensor, site: Site) -> Tensor:
        if tensor.ndim == 5:
            raise ValueError("shuffled: is for intermediates of whole images: 'heads', 'attn', 'mlp', 'block'")
        prefix = site.layout.num_prefix
        order = torch.randperm(tensor.shape[1] - prefix, generator=torch.Generator().manual_seed(seed)) + prefix
        return torch.cat((tensor[:, :prefix], tensor[:, order.to(tensor.device)]), dim=1)

    return replaced(values, heads)


def redirected(to: str, heads: Sequence[int] | None = None) -> Edit:
    """Attention with all of its weight elsewhere: an edit of ``'maps'``.

    Args:
        to: ``'self'``, the query's own token, or ``'all'``, all keys that count alike.
        heads: Which heads; None for all.

    Raises:
        ValueError: If ``to`` is something else.
    """
    if to not in (SELF, ALL):
        raise ValueError(f'to={to!r}: expected {SELF!r} or {ALL!r}')

    def values(maps: Tensor, site: Site) -> Tensor:
        if to == ALL:
            return uniform_maps(site, maps)
        if site.keys is not None:
            raise ValueError("to='self': the keys of this block are no tokens of its queries")
        return torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)

    return replaced(values, heads)


def random_control(edit: Edit, seed: int = 0, of_maps: bool = False) -> Edit:
    """A change as large as that of an edit, in a random direction: of each vector along the last axis.

    Args:
        edit: The edit.
        seed: Of the random direction.
        of_maps: Whether it is an edit of maps: then pairs that must not see each other, in shifted windows say, stay
            as they are.
    """

    def control(tensor: Tensor, site: Site) -> Tensor:
        change = edit(tensor, site) - tensor
        noise = torch.randn(change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        noise = noise.to(tensor.device)
        noise = without_hidden(noise, site) if of_maps else noise
        noise = noise / noise.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        return tensor + noise.to(tensor) * change.norm(dim=-1, keepdim=True)

    return control


def relative_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """The norm of the difference of features ``(B, ...)`` over their norm before, of all maps together: ``(B,)``."""
    old, new = (torch.cat([part.double().flatten(1) for part in parts], dim=1) for parts in (before, after))
    return (new - old).norm(dim=1) / old.norm(dim=1).clamp(min=torch.finfo(old.dtype).tiny)
