"""Attention sinks: keys that nearly all queries attend to, and what the head does with them.

A key is a sink of a head if at least :data:`QUERIES` of the queries give it at least :data:`ATTENTION` of theirs. Its
head does nothing (NOP) if the key's value is short, and broadcasts if the value is long and the head gives all
queries nearly the same vector, so that its output has a stable rank near 1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitplug.attention.precision import at_least_float32
from vitplug.statistics.images import Arrays

from ..measure import Measure, Seen
from ..places import Place
from .attention import per_head

if TYPE_CHECKING:
    from ..runs import Run

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
    is_query_W1N1 = place.queries.is_token[:, None, :, None].to(maps)
    is_key_W1N = place.keys.is_token[:, None].to(maps.device)
    queries_W11, tiny = is_query_W1N1.sum(2).clamp(min=1), torch.finfo(maps.dtype).tiny
    received = (maps * is_query_W1N1).sum(3) / queries_W11
    events = ((maps >= ATTENTION) * is_query_W1N1).sum(3) / queries_W11
    mass, key = received.masked_fill(~is_key_W1N, -1).max(-1)
    is_sink = events.gather(-1, key[..., None])[..., 0] >= QUERIES
    norms = values.norm(dim=-1)
    others = norms.masked_fill(~is_key_W1N, torch.nan).scatter(-1, key[..., None], torch.nan)
    ratio = norms.gather(-1, key[..., None])[..., 0] / others.nanmedian(-1).values.clamp(min=tiny)
    squares = torch.linalg.svdvals((maps @ values) * is_query_W1N1).square()
    return Sinks(mass, key, is_sink, ratio, squares.sum(-1) / squares.amax(-1).clamp(min=tiny))


def _of_block(run: 'Run', kind: str, tensor: Tensor, place: Place) -> dict | None:
    """Means over windows ``(heads,)``, once the block's probabilities are there: its values come first."""
    if kind == 'v':
        run.cache['values'] = tensor
        return None
    sinks = find_sinks(tensor, run.cache.pop('values'), place)
    values = {
        'attention of the first key': sinks.mass,
        'sink': sinks.is_sink,
        'NOP': sinks.is_nop,
        'broadcast': sinks.is_broadcast,
    }
    return {name: value[0].float().mean(0).cpu().numpy() for name, value in values.items()}


def _observe(seen: Seen) -> Arrays:
    return per_head({'probs': seen.found.get('probs', {})}, seen.run.blocks)


SINKS = (
    Measure(
        'sinks',
        'Attention of the key with the most of it, mean over queries, and whether it is a sink, a key that gets at '
        f'least {ATTENTION:g} of the attention of {QUERIES:.0%} of the queries. A sink is a NOP if the norm of its '
        f'value is at most {SHORT:g} medians of the others, a broadcast if it is at least {LONG:g} and the outputs of '
        f'the head have a stable rank of at most {RANK:g}. Means over windows',
        'share',
        'Xiao et al. 2024 (sinks); the classes by value norm and stable rank: studies of sinks in ViTs',
        _observe,
        ('v', 'probs'),
        _of_block,
        axes=('layer', 'head'),
    ),
)
