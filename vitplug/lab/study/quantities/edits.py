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


def replaced(values: Callable[[Tensor, Site], Tensor], heads: Sequence[int] | None = None, tokens=None) -> Edit:
    """An edit that gives some heads and tokens other values.

    Args:
        values: Gives the values of the whole tensor, or what broadcasts to it.
        heads: Which heads; None for all.
        tokens: Which tokens; None for all.

    Returns:
        The edit. It raises a ValueError for a head or token that is not there.
    """

    def edit(tensor: Tensor, site: Site) -> Tensor:
        chosen = torch.ones((1,) * tensor.ndim, dtype=torch.bool, device=tensor.device)
        for what, indices, axis in (
            ('heads', heads, _axis_of_heads(tensor)),
            ('tokens', tokens, _axis_of_tokens(tensor)),
        ):
            if indices is not None:
                chosen = chosen & _chosen(what, indices, axis, tensor)
        return torch.where(chosen, values(tensor, site).to(tensor.dtype), tensor)

    return edit


def zero(heads: Sequence[int] | None = None, tokens: Sequence[int] | None = None) -> Edit:
    """Zero in place of the values."""
    return replaced(lambda tensor, site: torch.zeros_like(tensor), heads, tokens)


class TokenMeans:
    """Means over images of a token intermediate, such as ``heads``: of each prefix token, and of all patches together.

    They fit images of any size. For a mean that is held out, leave the edited images out of :meth:`add`.
    """

    def __init__(self):
        self._sums: list[Tensor] = []
        self._counts: list[int] = []

    def add(self, tensor: Tensor, site: Site) -> None:
        """Takes a tensor ``(B, N, ...)`` of some images."""
        parts = self._parts(tensor, site.layout.num_prefix)
        sums = [part.double().sum((0, 1)) for part in parts]
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        counts = [part.shape[0] * part.shape[1] for part in parts]
        self._counts = [a + b for a, b in zip(self._counts, counts, strict=True)] if self._counts else counts

    @classmethod
    def joined(cls, parts: Iterable['TokenMeans']) -> 'TokenMeans':
        """The means of several, each of other images."""
        means, parts = cls(), [part for part in parts if part._sums]
        if parts:
            means._sums = [sum(sums) for sums in zip(*(part._sums for part in parts), strict=True)]
            means._counts = [sum(counts) for counts in zip(*(part._counts for part in parts), strict=True)]
        return means

    @staticmethod
    def _parts(tensor: Tensor, num_prefix: int) -> list[Tensor]:
        return [*(tensor[:, i : i + 1] for i in range(num_prefix)), tensor[:, num_prefix:]]

    def values(self, tensor: Tensor, site: Site) -> Tensor:
        """The means in the places of the tokens ``(1, N, ...)``.

        Raises:
            ValueError: If no image was added, or those that were have another number of prefix tokens.
        """
        prefix = site.layout.num_prefix
        if len(self._sums) != prefix + 1:
            raise ValueError(
                f'means of {max(len(self._sums) - 1, 0)} prefix tokens: the tensor has {prefix}; add() images'
            )
        means = [total / count for total, count in zip(self._sums, self._counts, strict=True)]
        patches = means[-1].expand(tensor.shape[1] - prefix, *means[-1].shape)
        return torch.cat((*(one[None] for one in means[:-1]), patches))[None].to(tensor)


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

    The effect of an edit beyond that of its control is an effect of its direction.

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
    """Size of a change of features: the norm of the difference over that of the features, of all maps together.

    Args:
        before: Features of a forward, each ``(B, ...)``.
        after: The same of another one.

    Returns:
        ``(B,)``.
    """
    pairs = [(a.double().flatten(1), b.double().flatten(1)) for a, b in zip(before, after, strict=True)]
    of_change, whole = (
        torch.stack([part.square().sum(1) for part in parts]).sum(0)
        for parts in ([b - a for a, b in pairs], [a for a, _ in pairs])
    )
    return (of_change / whole.clamp(min=torch.finfo(whole.dtype).tiny)).sqrt()


def _axis_of_heads(tensor: Tensor) -> int | None:
    return 2 if tensor.ndim in (4, 5) else None


def _axis_of_tokens(tensor: Tensor) -> int | None:
    return None if tensor.ndim == 5 else 1


def _chosen(what: str, indices: Sequence[int], axis: int | None, tensor: Tensor) -> Tensor:
    """True at some indices of an axis, and shape 1 elsewhere."""
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
