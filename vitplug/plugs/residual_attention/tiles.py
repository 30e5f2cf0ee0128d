"""Attention with blended scores by tiles: the scores are formed once, and handed on."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...attention.grids import GridPair
from ...attention.inputs import Attention
from ...attention.precision import without_autocast
from ...attention.tiles import empty_out, row_table_of, scaled, tile_groups


def attend_to_blend(a: Attention, before: Tensor | None, alpha: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention with scores blended as residual attention has them, by tiles of query rows::

        scores = alpha * scale * q @ k^T + (1 - alpha) * before
        out    = softmax(scores + bias) @ v

    Only the scores are kept for backward, and they are handed on anyway.

    Args:
        a: The attention.
        before: Handed-over scores ``(B, W, H, Nq, Nk)``; None counts as ``alpha = 1``.
        alpha: ``(1,)``; None where there is nothing to blend with.

    Returns:
        The output ``(B, W, H, Nq, d)`` and the scores ``(B, W, H, Nq, Nk)``.
    """
    a = a.unpadded()
    before = None if before is None else before.to(a.q.dtype).flatten(0, 1)
    out, scores = _ToBlend.apply(*scaled(a), *row_table_of(a), before, alpha)
    return out.unflatten(0, a.q.shape[:2]), scores.unflatten(0, a.q.shape[:2])


class _ToBlend(torch.autograd.Function):
    """:func:`attend_to_blend` of scaled q, k and v ``(G, H, tokens, d)``, a row table and scores ``(G, H, Nq, Nk)``."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        row_table: Tensor | None,
        pairs: GridPair | None,
        before: Tensor | None,
        alpha: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        share = 1.0 if before is None or alpha is None else float(alpha)
        out, scores = empty_out(q, v), q.new_empty(*q.shape[:3], k.shape[2])
        with without_autocast(q.device):
            for group in tile_groups(q, k, row_table, pairs, k.shape[2]):
                for queries, keys in group.tiles():
                    logits = group.products(q[queries], k[keys], None if before is None else before[queries], share)
                    scores[queries] = logits
                    torch.bmm(group.softmax(group.add_bias(logits)).to(v.dtype), v[keys], out=out[queries])
        ctx.share, ctx.pairs = share, pairs
        ctx.alpha_dtype = alpha.dtype if alpha is not None else None
        ctx.save_for_backward(q, k, v, row_table, before, scores, out)
        return out, scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_handed: Tensor | None) -> tuple:
        q, k, v, row_table, before, scores, out = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_row_table = torch.zeros_like(row_table) if ctx.needs_input_grad[3] else None
        grad_before = None if before is None else torch.empty_like(before)
        towards_before: Tensor | float = 0.0
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out.contiguous()
        inner = (grad_out * out).sum(-1, keepdim=True)
        for group in tile_groups(q, k, row_table, ctx.pairs, k.shape[2], grad_row_table):
            for queries, keys in group.tiles():
                logits = scores[queries] if row_table is None else group.add_bias(scores[queries].clone())
                probs = group.softmax(logits)
                grad_scores = group.grad_scores(probs, v[keys], grad_out[queries], inner[queries], grad_v[keys])
                if grad_handed is not None:
                    grad_scores.add_(grad_handed[queries])
                if grad_before is not None:
                    towards_before += torch.dot(grad_scores.flatten(), before[queries].flatten()).double()
                    torch.mul(grad_scores, 1 - ctx.share, out=grad_before[queries])
                torch.bmm(grad_scores, k[keys], out=grad_q[queries])
                grad_k[keys].baddbmm_(grad_scores.mT, q[queries], alpha=ctx.share)
        grad_alpha = None
        if before is not None and ctx.needs_input_grad[6]:
            # No further pass for the gradient towards the own scores: sum_ij g_ij q_i k_j = sum_i q_i (g k)_i.
            towards_own = (grad_q.double() * q.double()).sum()
            grad_alpha = (towards_own - towards_before).to(ctx.alpha_dtype).view(1)
        return grad_q.mul_(ctx.share), grad_k, grad_v, grad_row_table, None, grad_before, grad_alpha
