"""Attention by parts, for a CPU alone: their maps stay in its cache, and backward forms them again.

The parts are rows of queries where maps are convolved, and heads where torch's fused call would form all maps.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from .grids import ceil_div
from .precision import at_least_float32
from .tuning import on_cpu

# Pairs of a query and a key from which on it pays.
PAIRS_FROM = 512**2
# Rows of queries at a time, at most.
ROWS = 512


def goes_by_parts(q: Tensor, k: Tensor, dropout_p: float) -> bool:
    """Whether attention had better go by parts. Sizes of a graph that is compiled or exported are not compared."""
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
    # As even as possible: a last part of few rows has as many neighbours as any.
    rows = ceil_div(tokens, ceil_div(tokens, ROWS))
    images = [None] * len(q) if added is None else added.expand(len(q), -1, tokens, -1).unbind(0)
    for q_HNd, k_HNd, v_HNd, added_HNN in zip(q.unbind(0), k.unbind(0), v.unbind(0), images, strict=True):
        parts = []
        for start in range(0, tokens, rows):
            low, high = max(0, start - halo), min(tokens, start + rows + halo)
            around = (start - low, high - min(tokens, start + rows))
            some = None if added_HNN is None else added_HNN[:, low:high]
            call = (form, q_HNd[:, low:high], k_HNd, v_HNd, some, around)
            parts.append(checkpoint(*call, use_reentrant=False, preserve_rng_state=False))
        outs.append(torch.cat(parts, dim=-2))
    return torch.stack(outs)


def goes_by_heads(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> bool:
    """Whether attention had better go by heads, which half precision does not."""
    return goes_by_parts(q, k, dropout_p) and q.dtype == k.dtype == v.dtype == at_least_float32(v.dtype)


class ByHeads(torch.autograd.Function):
    """Attention image by image and by some heads at a time, differentiable once::

        scores = q @ k^T + share * term
        out    = softmax(scores) @ v

    Args:
        q: Scaled queries ``(G, H, Nq, d)``.
        k: Keys ``(G, H, Nk, d)``.
        v: Values ``(G, H, Nk, e)``.
        term: ``(G or 1, H or 1, Nq, Nk)``; None for nothing.
        share: ``(1,)``; None for 1.
        hands_on: Whether the scores are wanted, and so kept for backward.

    Returns:
        The output ``(G, H, Nq, e)``, and the scores ``(G, H, Nq, Nk)`` if they are wanted.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, share: Tensor | None, hands_on: bool
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        # Token by token, so that joining the heads needs no copy.
        out = v.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        scores = q.new_empty(*q.shape[:3], k.shape[2]) if hands_on else None
        for part, (memory, probs) in _parts(q, k):
            found = _scores(q, k, term, share, part, memory if scores is None else scores[part])
            torch.bmm(torch.softmax(found, -1, out=probs), v[part], out=out[part])
        ctx.save_for_backward(q, k, v, term, share, scores, out)
        return out, scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_scores: Tensor | None) -> tuple:
        q, k, v, term, share, scores, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = (torch.empty_like(t) for t in (q, k, v))
        grad_term = torch.zeros_like(term) if ctx.needs_input_grad[3] else None
        grad_share = torch.zeros_like(share, dtype=torch.float64) if ctx.needs_input_grad[4] else None
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        # sum_j P_ij dP_ij of every row
        inner = (grad_out * out).sum(-1, keepdim=True)
        for part, (memory, probs) in _parts(q, k):
            found = _scores(q, k, term, share, part, memory) if scores is None else scores[part]
            torch.softmax(found, -1, out=probs)
            torch.bmm(probs.mT, grad_out[part], out=grad_v[part])
            grad = torch.bmm(grad_out[part], v[part].mT, out=memory).sub_(inner[part]).mul_(probs)
            if grad_scores is not None:
                grad.add_(grad_scores[part])
            torch.bmm(grad, k[part], out=grad_q[part])
            torch.bmm(grad.mT, q[part], out=grad_k[part])
            if grad_share is not None:
                grad_share += torch.dot(grad.flatten(), _of_part(term, part).flatten())
            if grad_term is not None:
                of_part = _of_part(grad_term, part)
                of_part.add_((grad if share is None else grad.mul_(share)).sum_to_size(of_part.shape))
        return grad_q, grad_k, grad_v, grad_term, grad_share, None


def _parts(q: Tensor, k: Tensor) -> Iterator[tuple[tuple[int, slice], Tensor]]:
    """An image and as many of its heads as there are threads, and memory for two of their maps, used again each time.

    One head does not keep two threads busy, and the maps of more leave the cache before the next step reads them.
    """
    images, heads, queries, _ = q.shape
    together = min(heads, torch.get_num_threads())
    memory = q.new_empty(2, together, queries, k.shape[2])
    for image in range(images):
        for head in range(0, heads, together):
            count = min(together, heads - head)
            yield (image, slice(head, head + count)), memory[:, :count]


def _of_part(term: Tensor, part: tuple[int, slice]) -> Tensor:
    """What belongs to a part, ``(heads or 1, Nq, Nk)``, of all of ``(G or 1, H or 1, Nq, Nk)``."""
    of_image = term[part[0] if len(term) > 1 else 0]
    return of_image[part[1]] if len(of_image) > 1 else of_image


def _scores(
    q: Tensor, k: Tensor, term: Tensor | None, share: Tensor | None, part: tuple[int, slice], out: Tensor
) -> Tensor:
    if term is None:
        return torch.bmm(q[part], k[part].mT, out=out)
    of_part = _of_part(term, part)
    (out.copy_(of_part) if share is None else torch.mul(of_part, share, out=out)).baddbmm_(q[part], k[part].mT)
    return out
