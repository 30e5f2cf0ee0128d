"""Attention sinks: keys that nearly all queries attend to, and what the head does with them.

A key is a sink of a head if at least :data:`QUERIES` of the queries give it at least :data:`ATTENTION` of theirs. Its
head does nothing (NOP) if the key's value is short, and broadcasts if the value is long and the head gives all
queries nearly the same vector, so that its output has a stable rank near 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitplug.attention.precision import at_least_float32

from .places import Place

#: Least attention to a sink, and least share of the queries that give it.
ATTENTION, QUERIES = 0.5, 0.9
#: The longest value of a NOP, the shortest of a broadcast, in medians of the values of the other keys.
SHORT, LONG = 0.2, 0.5
#: Largest stable rank of a broadcast.
RANK = 1.5


@dataclass(frozen=True)
class Sinks:
    """The key of each window and head that receives the most attention. All tensors are ``(B, W, H)``.

    Attributes:
        mass: Attention that it receives, mean over queries; 1 / keys where attention is uniform.
        key: Its slot in the window.
        is_sink: Whether it is a sink.
        value_ratio: Norm of its value, in medians of the norms of the window's other values.
        stable_rank: Of the outputs of the head, ``|O|_F^2 / |O|_2^2``: from 1 to the head's width.
    """

    mass: Tensor
    key: Tensor
    is_sink: Tensor
    value_ratio: Tensor
    stable_rank: Tensor

    @property
    def is_nop(self) -> Tensor:
        """Sinks of heads that do nothing."""
        return self.is_sink & (self.value_ratio <= SHORT)

    @property
    def is_broadcast(self) -> Tensor:
        """Sinks of heads that give all queries the same."""
        return self.is_sink & (self.value_ratio >= LONG) & (self.stable_rank <= RANK)


def find_sinks(maps_BWHNN: Tensor, v_BWHNd: Tensor, place: Place) -> Sinks:
    """The sinks of a block.

    Args:
        maps_BWHNN: Attention probabilities, ``(B, W, H, Nq, Nk)``.
        v_BWHNd: Values ``(B, W, H or more, Nk, d)``; heads without a map have no sinks.
        place: Where they are. Padding of windows is neither a query nor a key.

    Raises:
        ValueError: If the maps are of another place.
    """
    place.check(maps_BWHNN)
    maps = maps_BWHNN.to(at_least_float32(maps_BWHNN.dtype))
    values = v_BWHNd[:, :, : maps.shape[2]].to(maps)
    is_query_W1N1, is_key_W1N = (
        place.queries.is_token[:, None, :, None].to(maps),
        place.keys.is_token[:, None].to(maps.device),
    )
    queries_W11 = is_query_W1N1.sum(2).clamp(min=1)
    received = (maps * is_query_W1N1).sum(3) / queries_W11
    events = ((maps >= ATTENTION) * is_query_W1N1).sum(3) / queries_W11
    mass, key = received.masked_fill(~is_key_W1N, -1).max(-1)
    is_sink = events.gather(-1, key[..., None])[..., 0] >= QUERIES
    norms = values.norm(dim=-1)
    others = norms.masked_fill(~is_key_W1N, torch.nan).scatter(-1, key[..., None], torch.nan)
    ratio = norms.gather(-1, key[..., None])[..., 0] / others.nanmedian(-1).values.clamp(
        min=torch.finfo(maps.dtype).tiny
    )
    return Sinks(mass, key, is_sink, ratio, _stable_rank((maps @ values) * is_query_W1N1))


def _stable_rank(outputs_BWHNd: Tensor) -> Tensor:
    singular = torch.linalg.svdvals(outputs_BWHNd)
    squares = singular.square()
    return squares.sum(-1) / squares.amax(-1).clamp(min=torch.finfo(squares.dtype).tiny)
