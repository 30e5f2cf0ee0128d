"""From one block's windows, grids and heads to another's.

Each function takes the scores ``(B, W, H, Nq, Nk)``, their site, the new site and the new number of heads. It returns
the scores for the new block.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...attention.grids import TokenGrid, pooling_matrix
from ...attention.site import Site

#: Scores, their site, the new site and its number of heads -> the scores there.
Align = Callable[[Tensor, Site, Site, int], Tensor]


def keep(scores: Tensor, source: Site, site: Site, heads: int) -> Tensor:
    """Window by window and place by place."""
    return scores


def resize(scores: Tensor, source: Site, site: Site, heads: int) -> Tensor:
    """Of each window, or of global attention: over the grid of the queries, then over that of the keys.

    Equal grids keep their scores.
    Fewer rows or columns get the mean of those that each one covers (as ``F.adaptive_avg_pool2d``), more get the
    nearest. Prefix tokens are apart: the row of a class token is resized over the keys and its column over the queries.
    """
    before, now = source.pairs, site.pairs
    scores = _resize_grid(scores, -2, before.queries, now.queries)
    return _resize_grid(scores, -1, before.keys, now.keys)


def _resize_grid(scores: Tensor, dim: int, before: TokenGrid, now: TokenGrid) -> Tensor:
    """One axis of tokens, -2 or -1, to those of another grid."""
    if before.hw == now.hw:
        return scores
    prefix, places = scores.split((before.num_prefix, before.num_tokens - before.num_prefix), dim)
    places = _resize_side(places.unflatten(dim, before.hw), dim - 1, now.height)
    places = _resize_side(places, dim, now.width).flatten(dim - 1, dim)
    return torch.cat((prefix, places), dim) if before.num_prefix else places


def _resize_side(scores: Tensor, dim: int, size: int) -> Tensor:
    """Rows or columns of a grid, which lie along the axis ``dim < 0``, to another number of them."""
    before = scores.shape[dim]
    if before == size:
        return scores
    # Whole factors need no product with a matrix. Sizes that a graph leaves open are not compared: it would fix them.
    if type(before) is type(size) is int:
        if size % before == 0:
            return scores.repeat_interleave(size // before, dim)
        if before % size == 0:
            return scores.unflatten(dim, (size, -1)).mean(dim)
    return F.linear(scores.movedim(dim, -1), _shares(before, size, scores)).movedim(-1, dim)


def _shares(before: int, size: int, like: Tensor) -> Tensor:
    """What each of ``size`` rows takes of each of ``before``, ``(size, before)``: a mean of some, or the nearest."""
    if size <= before:
        return pooling_matrix(before, size, like)
    row, entry = (torch.arange(side, device=like.device) for side in (size, before))
    return (row[:, None] * before // size == entry).to(like.dtype)


def pool_windows(scores: Tensor, source: Site, site: Site, heads: int) -> Tensor:
    """Every new window gets the average of the windows it covers on the grid of windows."""
    before, now = source.layout.windows, site.layout.windows
    if before == now:
        return scores
    if torch.are_deterministic_algorithms_enabled():  # torch's pooling has no such backward on a GPU
        rows = _resize_side(scores.unflatten(1, before), -5, now[0])
        return _resize_side(rows, -4, now[1]).flatten(1, 2)
    # B W H N N  ->  B (H N N) rows cols
    maps = scores.flatten(2).transpose(1, 2).unflatten(2, before)
    return F.adaptive_avg_pool2d(maps, now).flatten(2).transpose(1, 2).unflatten(2, scores.shape[2:])


def resize_flat(scores: Tensor, source: Site, site: Site, heads: int) -> Tensor:
    """Windows and heads as one axis, window-major, resized to the nearest entry."""
    rows, cols = site.layout.windows
    before, after = scores.shape[1] * scores.shape[2], rows * cols * heads
    nearest = torch.arange(after, device=scores.device) * before // after
    return scores.flatten(1, 2)[:, nearest].unflatten(1, (rows * cols, heads))


def with_heads(
    align: Align, match_heads: Callable[[Tensor, int], Tensor], scores: Tensor, source: Site, site: Site, heads: int
) -> Tensor:
    """Aligned scores, then as many heads as the new block has."""
    return match_heads(align(scores, source, site, heads), heads)


def mean_of_heads(scores: Tensor, heads: int) -> Tensor:
    """Each new head gets the mean of all."""
    return scores.mean(dim=2, keepdim=True).expand(-1, -1, heads, -1, -1)


def repeat_heads(scores: Tensor, heads: int) -> Tensor:
    """Each head serves as many new heads."""
    return scores.repeat_interleave(heads // scores.shape[2], dim=2)


STAGE_ALIGNS = {'pool': pool_windows, 'flat_nearest': resize_flat}
HEAD_TRANSITIONS = {'mean': mean_of_heads, 'repeat': repeat_heads}
