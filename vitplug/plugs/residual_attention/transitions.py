"""From one block's windows, grids and heads to another's.

Each function takes the scores ``(B, W, H, Nq, Nk)``, their site, the new site and the new number of heads. It returns
the scores for the new block, and a mask of the pairs whose scores are known (None: all).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import replace

from ...attention.cache import cached
from ...attention.grids import TokenGrid, ceil_div, means_of_ranges
from ...attention.layouts import WindowLayout
from ...attention.site import Site

#: Scores, their site, the new site and its number of heads -> the scores there, and the pairs that are known.
Align = Callable[[Tensor, Site, Site, int], tuple[Tensor, Tensor | None]]


def keep(scores: Tensor, source: Site, site: Site, heads: int) -> tuple[Tensor, None]:
    """Window by window and place by place."""
    return scores, None


def resize(scores: Tensor, source: Site, site: Site, heads: int) -> tuple[Tensor, None]:
    """Of each window, or of global attention: over the grid of the queries, then over that of the keys.

    Equal grids keep their scores.
    Fewer rows or columns get the mean of those that each one covers (as ``F.adaptive_avg_pool2d``), more get the
    nearest. Prefix tokens are apart: the row of a class token is resized over the keys and its column over the queries.
    """
    before, now = source.pairs, site.pairs
    scores = _resize_grid(scores, -2, before.queries, now.queries)
    return _resize_grid(scores, -1, before.keys, now.keys), None


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
    row = torch.arange(size, device=like.device)
    start = row * before // size
    end = start + 1 if size > before else ceil_div((row + 1) * before, size)
    return means_of_ranges(start, end, before, like.dtype)


def align_tokens(scores: Tensor, source: Site, site: Site, heads: int) -> tuple[Tensor, Tensor | None]:
    """Token by token: every pair that shared a window before keeps its score."""
    before, now = source.layout, site.layout
    if before.shift == now.shift:
        return scores, None
    if not isinstance(before, WindowLayout) or not isinstance(now, WindowLayout):
        raise TypeError(f'{before} and {now}: tokens of shifted windows alone are found again')
    window_WN, place_WN = _find_tokens(before, now, scores.device)
    # Advanced indices around the slice of heads: B W N N H.
    gathered = scores.movedim(2, -1)[:, window_WN[:, :, None], place_WN[:, :, None], place_WN[:, None, :]]
    known_WNN = window_WN[:, :, None] == window_WN[:, None, :]
    return gathered.movedim(-1, 2), known_WNN[:, None]


@cached(16)
def _find_tokens(source: WindowLayout, layout: WindowLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """For every place of every new window the window and the place its token had before, ``(W, N)`` each."""
    area = layout.window**2
    # Padding counts as tokens, which have their scores too.
    before, now = (
        replace(each, height=layout.padded[0], width=layout.padded[1]).slots(device).places for each in (source, layout)
    )
    slots_WN = torch.empty_like(now).scatter_(0, now, before).view(-1, area)
    return slots_WN // area, slots_WN % area


def pool_windows(scores: Tensor, source: Site, site: Site, heads: int) -> tuple[Tensor, None]:
    """Every new window gets the average of the windows it covers on the grid of windows."""
    before, now = source.layout.windows, site.layout.windows
    if before == now:
        return scores, None
    shape = scores.shape[2:]
    # B W H N N  ->  B (H N N) rows cols
    maps = scores.flatten(2).transpose(1, 2).unflatten(2, before)
    return F.adaptive_avg_pool2d(maps, now).flatten(2).transpose(1, 2).unflatten(2, shape), None


def resize_flat(scores: Tensor, source: Site, site: Site, heads: int) -> tuple[Tensor, None]:
    """Windows and heads as one axis, window-major, resized to the nearest entry."""
    rows, cols = site.layout.windows
    before, after = scores.shape[1] * scores.shape[2], rows * cols * heads
    nearest = torch.arange(after, device=scores.device) * before // after
    return scores.flatten(1, 2)[:, nearest].unflatten(1, (rows * cols, heads)), None


def with_heads(
    align: Align,
    match_heads: Callable[[Tensor, int], Tensor],
    scores: Tensor,
    source: Site,
    site: Site,
    heads: int,
) -> tuple[Tensor, Tensor | None]:
    """Aligned scores, then as many heads as the new block has."""
    aligned, known = align(scores, source, site, heads)
    return match_heads(aligned, heads), known


def mean_of_heads(scores: Tensor, heads: int) -> Tensor:
    """Each new head gets the mean of all."""
    return scores.mean(dim=2, keepdim=True).expand(-1, -1, heads, -1, -1)


def repeat_heads(scores: Tensor, heads: int) -> Tensor:
    """Each head serves as many new heads."""
    return scores.repeat_interleave(heads // scores.shape[2], dim=2)


WINDOW_ALIGNS = {'index': keep, 'parity': keep, 'token': align_tokens}
STAGE_ALIGNS = {'pool': pool_windows, 'flat_nearest': resize_flat}
HEAD_TRANSITIONS = {'mean': mean_of_heads, 'repeat': repeat_heads}
