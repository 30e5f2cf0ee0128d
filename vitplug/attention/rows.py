"""Attention by rows of queries, for a CPU alone: maps stay in its cache, and backward forms them again.

It pays for convolved maps from some 512 tokens on: without it a whole model takes 1.3 of the time at 1,025 tokens.
Where a bias is trained it saves memory alone (:data:`.forms.MAPS`).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .tuning import on_cpu

# Pairs of a query and a key from which on it pays.
PAIRS_FROM = 512**2
# Rows of queries at a time.
ROWS = 256


def goes_by_rows(q: Tensor, k: Tensor, dropout_p: float) -> bool:
    """Whether attention had better go by rows. Sizes of a graph that is compiled or exported are not compared."""
    if torch.compiler.is_compiling() or dropout_p or not on_cpu(q.device):
        return False
    return q.shape[-2] * k.shape[-2] >= PAIRS_FROM


def by_rows(
    form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, halo: int = 0
) -> Tensor:
    """Attention image by image and by some rows of queries at a time.

    Args:
        form: Called with q, k, v and what is added to the scores, of one image and some rows, and with how many of the
            rows before, and after, are neighbours alone; gives the output of the others.
        q: Queries ``(G, H, Nq, d)``.
        k: Keys ``(G, H, Nk, d)``.
        v: Values ``(G, H, Nk, e)``.
        added: ``(G or 1, H or 1, Nq, Nk)``; None for nothing.
        halo: Rows beside its own that a row depends on.

    Returns:
        ``(G, H, Nq, e)``.
    """
    tokens, outs = q.shape[-2], []
    images = [None] * len(q) if added is None else added.expand(len(q), -1, tokens, -1).unbind(0)
    for q_HNd, k_HNd, v_HNd, added_HNN in zip(q.unbind(0), k.unbind(0), v.unbind(0), images, strict=True):
        parts = []
        for start in range(0, tokens, ROWS):
            low, high = max(0, start - halo), min(tokens, start + ROWS + halo)
            around = (start - low, high - min(tokens, start + ROWS))
            some = None if added_HNN is None else added_HNN[:, low:high]
            call = (form, q_HNd[:, low:high], k_HNd, v_HNd, some, around)
            parts.append(checkpoint(*call, use_reentrant=False, preserve_rng_state=False))
        outs.append(torch.cat(parts, dim=-2))
    return torch.stack(outs)
