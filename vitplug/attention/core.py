"""The one place that computes attention, and the one place that fixes the order of the plugs in it.

Shape suffixes used in this package::

    B  images in the batch      W  windows of one image (1 for global attention)
    H  heads                    N  tokens that attend to each other (of one window)
    d  width of one head        D  width of a token, H * d

Every host brings q, k and v as ``(B, W, H, N, d)``, so that no plug needs to know whether
attention is global or windowed.
"""

from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from .carry import Carry
from .fused import fused
from .grids import TokenGrid
from .inputs import Attention, scores_of
from .intermediates import LayerRecord
from .precision import at_least_float32, softmax, without_autocast

_fused_enabled = True


@contextmanager
def fused_attention(enabled: bool):
    """Allows (default) or forbids the fused forms of attention inside a ``with`` block.

    Both forms give the same result to rounding. Tests compare them, and gradients with respect to
    attention maps need the plain form, whose maps lie on the way to the output.
    """
    global _fused_enabled
    before, _fused_enabled = _fused_enabled, enabled
    try:
        yield
    finally:
        _fused_enabled = before


def attend(
    q_BWHNd: Tensor,
    k_BWHNd: Tensor,
    v_BWHNd: Tensor,
    *,
    scale: float,
    grid: TokenGrid,
    plugs,
    carry: Carry,
    bias_Hyx: Tensor | None = None,
    mask_WNN: Tensor | None = None,
    valid_BWN: Tensor | None = None,
    dropout_p: float = 0.0,
    record: LayerRecord | None = None,
) -> tuple[Tensor, Carry]:
    """Multi-head attention with the sockets of one layer, in this order::

        carry  = [tap socket](q, k, v, valid)
        scores = scale * q @ k^T
        logits = [scores socket](scores, bias + [bias socket])      default: scores + bias
        probs  = dropout(softmax(logits + mask))
        out    = [map socket](probs) @ v                            default: probs @ v

    Where neither the scores nor the map socket is taken, one fused call does the same to rounding. A module in
    one of them may bring a fast form of its own (:class:`~vitplug.plugs.plug.HasFastForm`); one in the scores socket
    may also widen (:class:`~vitplug.plugs.plug.WidensScores`): it gives wider q and k and a bias such that
    ``q @ k^T + bias`` are the logits it would have made of the scores.

    Args:
        q_BWHNd: Queries; keys and values alike. Heads of v beyond those of q attend uniformly. Without any
            head, the map socket brings the maps.
        scale: Factor of the dot products.
        grid: How the N tokens lie in the image.
        plugs: The layer's :class:`~vitplug.plugs.LayerPlugs`.
        carry: What earlier layers handed over.
        bias_Hyx: The host's own additive position bias ``(H or 1, 2h-1, 2w-1)``, one value for every offset.
        mask_WNN: Additive mask of shifted or padded windows; added last, never handed over.
        valid_BWN: True for tokens of images, False for padding; None without padding. Uniform heads and the tap
            socket use it. Softmax attention sees padding, as in the stock hosts.
        dropout_p: Drop rate of the probabilities, 0 outside training.
        record: Takes the intermediates that were asked for.

    Returns:
        The output ``(B, W, H, N, d)`` and the carry for the next layer.
    """
    carry = plugs.tap(q_BWHNd, k_BWHNd, v_BWHNd, grid, carry, valid_BWN)
    bias_Hyx = plugs.add_bias(bias_Hyx, grid)
    wants_maps = record is not None and record.wants_maps
    if wants_maps and q_BWHNd.shape[2]:
        # A block that reuses an earlier one's maps has no q and k, and so nothing before the maps.
        record.add(scores=scores_of(q_BWHNd, k_BWHNd, scale), bias=_expand(bias_Hyx, grid))
    widens = _fused_enabled and plugs.widens(grid)
    if widens:
        q_BWHNd, k_BWHNd, bias_Hyx, carry = plugs.widen(q_BWHNd, k_BWHNd, bias_Hyx, grid, carry)
    heads = q_BWHNd.shape[2]
    inputs = Attention(q_BWHNd, k_BWHNd, v_BWHNd[:, :, :heads], scale, grid, bias_Hyx, mask_WNN, dropout_p)
    form = plugs.fast_form(inputs, widens) if _fused_enabled else None
    if form is None or wants_maps:
        blend = _add_bias if widens else plugs.blend_scores
        logits, next_carry = blend(scores_of(q_BWHNd, k_BWHNd, scale), _expand(bias_Hyx, grid), grid, carry)
        # Maps recorded beside a fast form are those without dropout: its random draw stays inside it.
        drop = dropout_p if form is None else 0.0
        maps, next_carry = _maps(logits, grid, plugs, next_carry, mask_WNN, drop, record)
    if form is None:
        out_BWHNd, uniform_v = plugs.weigh(maps.to(v_BWHNd.dtype), v_BWHNd)
    else:
        out_BWHNd, next_carry = form(inputs, carry)
        uniform_v = v_BWHNd[:, :, heads:]
    if uniform_v.shape[2]:
        out_BWHNd = torch.cat((out_BWHNd, _uniform(uniform_v, mask_WNN, valid_BWN)), dim=2)
    return out_BWHNd, next_carry


def attend_bare(
    q_BWHNd: Tensor,
    k_BWHNd: Tensor,
    v_BWHNd: Tensor,
    *,
    scale: float,
    valid_BWN: Tensor | None = None,
    wants_probs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention without sockets, bias and dropout, whose v may be of another width than q and k::

        out = softmax(scale * q @ k^T) @ v          over the valid keys

    Args:
        q_BWHNd: Queries; keys alike.
        v_BWHNd: Values.
        scale: Factor of the dot products.
        valid_BWN: True for the keys that count, at least one in each window; None for all.
        wants_probs: Whether the probabilities are to be returned too.

    Returns:
        The output ``(B, W, H, N, width of v)``, and the probabilities ``(B, W, H, N, N)`` where they are
        wanted or had to be formed, None elsewhere. They lie on the way to the output only in the plain form.
    """
    probs = _bare_probs(q_BWHNd, k_BWHNd, scale, valid_BWN) if wants_probs or not _fused_enabled else None
    if _fused_enabled:
        return fused(Attention(q_BWHNd, k_BWHNd, v_BWHNd, scale, valid=valid_BWN)), probs
    return probs.to(v_BWHNd.dtype) @ v_BWHNd, probs


def _bare_probs(q_BWHNd: Tensor, k_BWHNd: Tensor, scale: float, valid_BWN: Tensor | None) -> Tensor:
    """The softmax, and the scores before it, in float32 at least: q may hold the channels of many layers."""
    wide = torch.promote_types(q_BWHNd.dtype, torch.float32)
    with without_autocast(q_BWHNd.device):
        scores = (q_BWHNd.to(wide) * scale) @ k_BWHNd.to(wide).transpose(-2, -1)
        if valid_BWN is not None:
            scores = scores.masked_fill(~valid_BWN[:, :, None, None], -torch.inf)
        return F.softmax(scores, dim=-1)


def _expand(bias_Hyx: Tensor | None, grid: TokenGrid) -> Tensor | None:
    return None if bias_Hyx is None else grid.expand_offsets(bias_Hyx)


def _add_bias(scores: Tensor, bias_HNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
    """The logits where nothing blends the scores, and the carry as it is."""
    return (scores if bias_HNN is None else scores + bias_HNN), carry


def _maps(logits, grid, plugs, carry, mask_WNN, dropout_p, record):
    """The attention maps that multiply v, ``(B, W, H, N, N)``, and the next carry."""
    if mask_WNN is not None:
        logits = logits + mask_WNN[:, None].to(logits.dtype)
    probs = softmax(logits)
    dropped = F.dropout(probs, dropout_p) if dropout_p else probs
    maps, carry = plugs.refine_map(dropped, mask_WNN, grid, carry)
    if record is not None:
        record.add(maps=maps, **(dict(logits=logits, probs=probs) if logits.shape[2] else {}))
    return maps, carry


def _uniform(v_BWHNd: Tensor, mask_WNN: Tensor | None, valid_BWN: Tensor | None) -> Tensor:
    """Attention that sees all tokens alike, except padding and those a mask keeps apart.

    A query that sees no valid token, itself padding, gets 0.
    """
    if valid_BWN is not None:
        sees_BWNN = valid_BWN[:, :, None] if mask_WNN is None else valid_BWN[:, :, None] & (mask_WNN == 0)
        weights_BWNN = sees_BWNN.to(at_least_float32(v_BWHNd.dtype))
        share_BWNN = weights_BWNN / weights_BWNN.sum(-1, keepdim=True).clamp(min=1)
        return (share_BWNN[:, :, None].to(v_BWHNd.dtype) @ v_BWHNd).expand_as(v_BWHNd)
    if mask_WNN is None:
        return v_BWHNd.mean(dim=-2, keepdim=True).expand_as(v_BWHNd)
    return mask_WNN.softmax(-1)[:, None].to(v_BWHNd.dtype) @ v_BWHNd
