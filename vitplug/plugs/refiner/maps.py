"""Refined and reused maps: how they are handed on and multiply the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from ...attention.carry import Carry, carrying
from ...attention.grids import GridPair
from ...attention.site import Site, without_hidden

if TYPE_CHECKING:
    from .plug import Refiner


class Matched(nn.Module):
    """The product of refined or reused maps with the values."""

    def __init__(self, settings: Refiner):
        super().__init__()
        self.key = settings.name
        self.copies = settings.copies
        self.split = settings.value_split

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ``(B, W, r H, Nq, Nk)`` times the values, map ``h'`` with the values of head ``h' // r``.

        Returns:
            ``(B, W, r H, Nq, d)``, or ``(B, W, H, Nq, d)`` where heads are split; and the further value heads.
        """
        heads = maps.shape[2] // self.copies
        own, rest = v_BWHNd[:, :, :heads], v_BWHNd[:, :, heads:]
        maps = maps.unflatten(2, (heads, self.copies))
        if self.split:
            slices = own.unflatten(-1, (self.copies, -1)).transpose(-2, -3)
            return (maps @ slices).transpose(-2, -3).flatten(-2), rest
        # All copies of a head in one product, so that its values need no repetition.
        out = maps.flatten(3, 4) @ own
        return out.unflatten(3, (self.copies, -1)).flatten(2, 3), rest


class ReusedMap(Matched):
    """Takes the refined map of an earlier block in place of an own one."""

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The handed-over maps; ``probs`` has no head."""
        return carry[self.key], carry


class Refine(Matched):
    """Refines maps ``(B, W, H, Nq, Nk)``; the linear and the bottleneck form differ in :meth:`refine`."""

    def __init__(self, settings: Refiner):
        super().__init__(settings)
        self.hands_over = settings.share > 0

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        """Refined maps of one batch of windows."""
        raise NotImplementedError

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps ``(B, W, H or r H, Nq, Nk)`` that multiply the values, and the carry."""
        # A padded query is no neighbour. Where the softmax sees padding, as in stock image models, padding counts.
        valid_queries = None if site.attends_padding else site.valid_queries
        if valid_queries is not None:
            probs = probs.masked_fill(~valid_queries[:, :, None, :, None], 0)
        # The convolution carries probability over to pairs of tokens that must not see each other.
        maps = without_hidden(self.refine(probs.flatten(0, 1), site.pairs).unflatten(0, probs.shape[:2]), site)
        return maps, carrying(carry, self.key, maps) if self.hands_over else carry


class UnrefinedMap(Refine):
    """Hands a map over as it is."""

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        return maps_BHNN
