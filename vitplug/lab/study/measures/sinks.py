"""Attention sinks: keys that most queries attend to."""

import numpy as np
import torch
from torch import Tensor

from vitplug.attention.precision import at_least_float32

from ..measure import Measure, Run
from ..places import Place
from .attention import per_block

#: Least attention to a sink, and least share of the queries that give it.
ATTENTION, QUERIES = 0.5, 0.9
#: The longest value of a sink whose head does nothing, the shortest of one whose head gives all queries the same, in
#: medians of the norms of the other values, and the largest stable rank of such a head's outputs.
SHORT, LONG, RANK = 0.2, 0.5, 1.5


def find_sinks(maps_BWHNN: Tensor, v_BWHNd: Tensor, place: Place) -> dict[str, Tensor]:
    """The key of each window and head that receives the most attention.

    Args:
        maps_BWHNN: Attention probabilities, ``(B, W, H, Nq, Nk)``.
        v_BWHNd: Values ``(B, W, H or more, Nk, d)``; heads without a map have no sinks.
        place: Where they are. Padding of windows is neither a query nor a key.

    Returns:
        ``(B, W, H)`` each: ``'key'``, its slot; ``'attention'`` that it gets, mean over queries; whether it is a
        ``'sink'``; ``'ratio'``, the norm of its value in medians of the others'; ``'rank'``, the stable rank
        ``|O|_F^2 / |O|_2^2`` of the head's outputs; whether the sink is ``'NOP'`` or ``'broadcast'``.

    Raises:
        ValueError: If the maps are of another place.
    """
    place.check(maps_BWHNN)
    maps = maps_BWHNN.to(at_least_float32(maps_BWHNN.dtype))
    values, tiny = v_BWHNd[:, :, : maps.shape[2]].to(maps), torch.finfo(maps.dtype).tiny
    is_query_W1N1 = place.queries.is_token[:, None, :, None].to(maps)
    is_key_W1N = place.keys.is_token[:, None].to(maps.device)
    queries_W11 = is_query_W1N1.sum(2).clamp(min=1)
    received = (maps * is_query_W1N1).sum(3) / queries_W11
    attention, key = received.masked_fill(~is_key_W1N, -1).max(-1)
    givers = ((maps >= ATTENTION) * is_query_W1N1).sum(3) / queries_W11
    sink = _at(givers, key) >= QUERIES
    norms = values.norm(dim=-1)
    others = norms.masked_fill(~is_key_W1N, torch.nan).scatter(-1, key[..., None], torch.nan)
    ratio = _at(norms, key) / others.nanmedian(-1).values.clamp(min=tiny)
    squares = torch.linalg.svdvals((maps @ values) * is_query_W1N1).square()
    rank = squares.sum(-1) / squares.amax(-1).clamp(min=tiny)
    nop, broadcast = sink & (ratio <= SHORT), sink & (ratio >= LONG) & (rank <= RANK)
    return dict(key=key, attention=attention, sink=sink, ratio=ratio, rank=rank, NOP=nop, broadcast=broadcast)


def _at(of_keys: Tensor, key: Tensor) -> Tensor:
    return of_keys.gather(-1, key[..., None])[..., 0]


def _of_block(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
    """Means over windows ``(heads,)``, once the block's probabilities are there: its values come first."""
    if kind == 'v':
        run.cache['values'] = tensor
        return {}
    found = find_sinks(tensor, run.cache.pop('values'), place)
    shown = ('attention', 'sink', 'NOP', 'broadcast')
    return {name: found[name][0].float().mean(0).cpu().numpy() for name in shown}


sinks = Measure(
    'sinks',
    'Attention of the key with the most of it, mean over queries, and whether it is a sink, a key that gets at least '
    f'{ATTENTION:g} of the attention of {QUERIES:.0%} of the queries. A sink is a NOP if the norm of its value is at '
    f'most {SHORT:g} medians of the others, a broadcast if it is at least {LONG:g} and the outputs of the head have a '
    f'stable rank of at most {RANK:g}. Means over windows',
    'share',
    'Xiao et al. 2024 (sinks); the classes by value norm and stable rank: studies of sinks in ViTs',
    per_block,
    ('v', 'probs'),
    _of_block,
    axes=('layer', 'head'),
)


SINKS = (sinks,)
