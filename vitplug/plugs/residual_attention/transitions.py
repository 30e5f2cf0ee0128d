"""From one block's windows and heads to another's.

Each function takes the scores ``(B, W, H, Nq, Nk)``, the layout of their windows, the new layout and the new number of
heads. It returns the scores for the new block, and a mask of the pairs whose scores are known (None: all).
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import is_compiling, replace

from ...attention.layouts import Layout


def keep(scores: Tensor, source: Layout, layout: Layout, heads: int) -> tuple[Tensor, None]:
    """Window by window and place by place."""
    return scores, None


def align_tokens(scores: Tensor, source: Layout, layout: Layout, heads: int) -> tuple[Tensor, Tensor | None]:
    """Token by token: every pair that shared a window before keeps its score."""
    if not layout.is_windowed or source.shift == layout.shift:
        return scores, None
    find = _find_tokens if is_compiling() else _cached_find_tokens
    window_WN, place_WN = find(source, layout, scores.device)
    # Advanced indices around the slice of heads: B W N N H.
    found = scores.movedim(2, -1)[:, window_WN[:, :, None], place_WN[:, :, None], place_WN[:, None, :]]
    known_WNN = window_WN[:, :, None] == window_WN[:, None, :]
    return found.movedim(-1, 2), known_WNN[:, None]


def _find_tokens(source: Layout, layout: Layout, device: torch.device) -> tuple[Tensor, Tensor]:
    """For every place of every new window the window and the place its token had before, ``(W, N)`` each."""
    # Inference tensors could not be used by a later training forward.
    with torch.inference_mode(False):
        area = layout.window**2
        # Padding counts as tokens, which have their scores too.
        before, now = (
            replace(each, height=layout.padded[0], width=layout.padded[1]).slots(device)[0] for each in (source, layout)
        )
        slots_WN = torch.empty_like(now).scatter_(0, now, before).view(-1, area)
        return slots_WN // area, slots_WN % area


_cached_find_tokens = lru_cache(maxsize=16)(_find_tokens)


def pool_windows(scores: Tensor, source: Layout, layout: Layout, heads: int) -> tuple[Tensor, None]:
    """Every new window gets the average of the windows it covers on the grid of windows."""
    if source.windows == layout.windows:
        return scores, None
    shape = scores.shape[2:]
    # B W H N N  ->  B (H N N) rows cols
    maps = scores.flatten(2).transpose(1, 2).unflatten(2, source.windows)
    return F.adaptive_avg_pool2d(maps, layout.windows).flatten(2).transpose(1, 2).unflatten(2, shape), None


def resize_flat(scores: Tensor, source: Layout, layout: Layout, heads: int) -> tuple[Tensor, None]:
    """Windows and heads as one axis, window-major, resized to the nearest entry."""
    rows, cols = layout.windows
    before, after = scores.shape[1] * scores.shape[2], rows * cols * heads
    nearest = torch.arange(after, device=scores.device) * before // after
    return scores.flatten(1, 2)[:, nearest].unflatten(1, (rows * cols, heads)), None


def with_heads(align, match_heads, scores: Tensor, source: Layout, layout: Layout, heads: int):
    """Aligned scores, then as many heads as the new block has."""
    aligned, known = align(scores, source, layout, heads)
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
