"""The one place that computes attention, and the one place that fixes the order of the plugs in it.

Shape suffixes used in this package::

    B  images in the batch      W  windows of one image (1 for global attention)
    H  heads                    N  tokens that attend to each other (of one window); Nq queries, Nk keys
    d  width of one head        D  width of a token, H * d

Every host passes q as ``(B, W, H, Nq, d)``, k and v as ``(B, W, H, Nk, d)``, so that no plug needs to know whether
attention is global or windowed.
"""

from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import PairBias
from .carry import Carry
from .fused import fused
from .inputs import Attention, scores_of
from .intermediates import LayerRecord
from .precision import at_least_float32, softmax, without_autocast
from .site import Site

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
    site: Site,
    plugs,
    carry: Carry,
    biases: tuple[PairBias, ...] = (),
    dropout_p: float = 0.0,
    record: LayerRecord | None = None,
) -> tuple[Tensor, Carry]:
    """Multi-head attention with the sockets of one layer, in this order::

        q, k, v, carry = [qkv socket](q, k, v)
        carry          = [tap socket](q, k, v)
        scores         = scale * q @ k^T
        logits         = [scores socket](scores, biases + [bias socket])      default: scores + biases
        probs          = dropout(softmax(logits + mask))
        out            = [map socket](probs) @ v                              default: probs @ v

    Where neither the scores nor the map socket is taken, one fused call does the same to rounding. A module in
    one of them may have an exact fast form (:class:`~vitplug.plugs.sockets.HasFastForm`); one in the scores
    socket may also widen (:class:`~vitplug.plugs.sockets.WidensScores`): it gives wider q and k and biases such that
    ``scale * q @ k^T + biases`` equals the logits.

    Args:
        q_BWHNd: Queries ``(B, W, H, Nq, d)``. Without any head, the map socket supplies the maps.
        k_BWHNd: Keys ``(B, W, H, Nk, d)``.
        v_BWHNd: Values ``(B, W, H or more, Nk, d)``. Heads beyond those of q attend uniformly.
        scale: Factor of the dot products.
        site: Where the tokens are, with the mask of the windows and the valid keys
            (:meth:`~vitplug.attention.site.Site.in_windows`). Softmax attention sees padded keys unless
            ``attends_padding`` is False.
        plugs: The layer's :class:`~vitplug.plugs.LayerPlugs`.
        carry: Tensors that earlier layers handed on.
        biases: The host's own position biases.
        dropout_p: Drop rate of the probabilities, 0 outside training.
        record: Takes the intermediates that were asked for.

    Returns:
        The output ``(B, W, H, Nq, d)`` and the carry for the next layer.
    """
    q_BWHNd, k_BWHNd, v_BWHNd, carry = plugs.change_qkv(q_BWHNd, k_BWHNd, v_BWHNd, site, carry)
    carry = plugs.tap(q_BWHNd, k_BWHNd, v_BWHNd, site, carry)
    heads = q_BWHNd.shape[2]
    biases, mask = plugs.add_bias(biases, site), site.softmax_mask()
    attention = Attention(q_BWHNd, k_BWHNd, v_BWHNd[:, :, :heads], scale, biases, mask, dropout_p)
    wants_maps = record is not None and record.wants_maps
    if record is not None:
        # A block that reuses the maps of an earlier one has no q and k, and so no scores.
        record.add(v=v_BWHNd, **(dict(q=attention.q, k=attention.k) if heads else {}))
    own, widens = attention, _fused_enabled and plugs.widens(site)
    adds_up = widens or plugs.keeps_scores
    if widens:
        attention, carry = plugs.widen(attention, carry)
    form = None
    if _fused_enabled:
        inputs = attention.folded(widen=False) if adds_up else attention
        form = plugs.fast_form(inputs, site, widens)
    if form is None or wants_maps:
        blend = _add_bias if adds_up else plugs.blend_scores
        scores, bias = _scores_and_bias(attention)
        if wants_maps and heads:
            recorded = _scores_and_bias(own) if widens else (scores, bias)
            record.add(**dict(zip(('scores', 'bias'), recorded, strict=True)))
        logits, next_carry = blend(scores, bias, site, carry)
        # Maps recorded beside a fast form are those without dropout: its random draw stays inside it.
        drop = dropout_p if form is None else 0.0
        maps, next_carry = _maps(logits, mask, site, plugs, next_carry, drop, record)
    if form is None:
        out_BWHNd, uniform_v = plugs.weigh(maps.to(v_BWHNd.dtype), v_BWHNd)
    else:
        out_BWHNd, next_carry = form(inputs, carry)
        uniform_v = v_BWHNd[:, :, heads:]
    if uniform_v.shape[2]:
        out_BWHNd = torch.cat((out_BWHNd, _uniform(uniform_v, site)), dim=2)
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
    """Attention without sockets, bias and dropout; v may have another width than q and k::

        out = softmax(scale * q @ k^T) @ v          over the valid keys

    Args:
        q_BWHNd: Queries ``(B, W, H, Nq, width)``.
        k_BWHNd: Keys ``(B, W, H, Nk, width)``.
        v_BWHNd: Values ``(B, W, H, Nk, width of v)``.
        scale: Factor of the dot products.
        valid_BWN: True for the keys that count, at least one in each window; None for all.
        wants_probs: Whether the probabilities are to be returned too.

    Returns:
        The output ``(B, W, H, Nq, width of v)``, and the probabilities ``(B, W, H, Nq, Nk)`` where they are
        wanted or had to be formed, None elsewhere. They lie on the way to the output only in the plain form.
    """
    probs = _bare_probs(q_BWHNd, k_BWHNd, scale, valid_BWN) if wants_probs or not _fused_enabled else None
    if _fused_enabled:
        return fused(Attention(q_BWHNd, k_BWHNd, v_BWHNd, scale, valid=valid_BWN)), probs
    return probs.to(v_BWHNd.dtype) @ v_BWHNd, probs


def _scores_and_bias(attention: Attention) -> tuple[Tensor, Tensor | None]:
    return scores_of(attention.q, attention.k, attention.scale), attention.expand_bias()


def _bare_probs(q_BWHNd: Tensor, k_BWHNd: Tensor, scale: float, valid_BWN: Tensor | None) -> Tensor:
    """The softmax, and the scores before it, in float32 at least: q may hold the channels of many layers."""
    wide = torch.promote_types(q_BWHNd.dtype, torch.float32)
    with without_autocast(q_BWHNd.device):
        scores = (q_BWHNd.to(wide) * scale) @ k_BWHNd.to(wide).transpose(-2, -1)
        if valid_BWN is not None:
            scores = scores.masked_fill(~valid_BWN[:, :, None, None], -torch.inf)
        return F.softmax(scores, dim=-1)


def _add_bias(scores: Tensor, bias: Tensor | None, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
    """The logits where nothing blends the scores, and the carry as it is."""
    return (scores if bias is None else scores + bias), carry


def _maps(logits, mask, site, plugs, carry, dropout_p, record):
    """The attention maps that multiply v, ``(B, W, H, Nq, Nk)``, and the next carry."""
    if mask is not None:
        logits = logits + mask.to(logits.dtype)
    probs = softmax(logits)
    dropped = F.dropout(probs, dropout_p) if dropout_p else probs
    maps, carry = plugs.refine_map(dropped, site, carry)
    if record is not None:
        record.add(maps=maps, **(dict(logits=logits, probs=probs) if logits.shape[2] else {}))
    return maps, carry


def _uniform(v_BWHNd: Tensor, site: Site) -> Tensor:
    """Attention with equal weights for all keys but padding and masked ones, ``(B, W, H, Nq, d)``.

    A query without any valid key, itself padding, gets 0.
    """
    shape = (*v_BWHNd.shape[:3], site.layout.grid.num_tokens, v_BWHNd.shape[4])
    if site.valid_keys is not None:
        sees_BWNN = site.valid_keys[:, :, None]
        sees_BWNN = sees_BWNN if site.mask is None else sees_BWNN & (site.mask == 0)
        weights_BWNN = sees_BWNN.to(at_least_float32(v_BWHNd.dtype))
        share_BWNN = weights_BWNN / weights_BWNN.sum(-1, keepdim=True).clamp(min=1)
        return (share_BWNN[:, :, None].to(v_BWHNd.dtype) @ v_BWHNd).expand(shape)
    if site.mask is None:
        return v_BWHNd.mean(dim=-2, keepdim=True).expand(shape)
    return (site.mask.softmax(-1).unsqueeze(2).to(v_BWHNd.dtype) @ v_BWHNd).expand(shape)
