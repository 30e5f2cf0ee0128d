"""The one place that computes attention, and the one place that fixes the order of the plugs in it.

Shape suffixes used in this package::

    B  images in the batch      W  windows of one image (1 for global attention)
    H  heads                    N  tokens that attend to each other (of one window); Nq queries, Nk keys
    d  width of one head        D  width of a token, H * d

Every host passes q as ``(B, W, H, Nq, d)``, k and v as ``(B, W, H, Nk, d)``, so that no plug needs to know whether
attention is global or windowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import PairBias
from .carry import Carry
from .flex import refuse_maps
from .fused import fused
from .inputs import Attention, scores_of
from .intermediates import LayerRecord
from .precision import at_least_float32, without_autocast
from .site import Site
from .sockets import FastForm, LayerSockets

_fused_enabled = True


@contextmanager
def fused_attention(enabled: bool) -> Iterator[None]:
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
    plugs: LayerSockets,
    carry: Carry,
    biases: tuple[PairBias, ...] = (),
    dropout_p: float = 0.0,
    record: LayerRecord | None = None,
) -> tuple[Tensor, Carry]:
    """Multi-head attention with the sockets of one layer, in this order::

        q, k, v, carry = [qkv socket](q, k, v)
        carry          = [tap socket](q, k, v)
        k, v           = k, v and those of [extra_keys socket](q)
        scores         = scale * q @ k^T
        logits         = [scores socket](scores, biases + [bias socket])      default: scores + biases
        logits         = [logits socket](logits)
        probs          = dropout([normalise socket](logits + mask))           default: softmax
        out            = [map socket](probs) @ v                              default: probs @ v

    Where no socket of pairs is taken, one fused call does the same to rounding. A module that is alone in them may have
    an exact fast form (:class:`~vitplug.plugs.sockets.HasFastForm`); one in the scores socket may also widen
    (:class:`~vitplug.plugs.sockets.WidensScores`): it gives wider q and k and biases such that
    ``scale * q @ k^T + biases`` equals the logits.

    Args:
        q_BWHNd: Queries ``(B, W, H, Nq, d)``. Without any head, the map socket supplies the maps.
        k_BWHNd: Keys ``(B, W, H, Nk, d)``.
        v_BWHNd: Values ``(B, W, H or more, Nk, d)``. Heads beyond those of q attend uniformly.
        scale: Factor of the dot products.
        site: Where the tokens are, with the mask of the windows and the valid keys
            (:meth:`~vitplug.attention.site.Site.in_windows`). Softmax attention sees padded keys unless
            ``attends_padding`` is False.
        plugs: The layer's plugs, :class:`~vitplug.plugs.LayerPlugs`.
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
    own_v, uniform_v = v_BWHNd[:, :, :heads], v_BWHNd[:, :, heads:]
    biases = plugs.add_bias(biases, site)
    attention = Attention(q_BWHNd, k_BWHNd, own_v, scale, biases, site.softmax_mask(), dropout_p)
    extra = plugs.extra_keys(q_BWHNd, site)
    for keys in extra:
        attention = attention.with_extra(keys)
    if record is not None:
        # A block that reuses the maps of an earlier one has no q and k, and so no scores.
        record.add(v=v_BWHNd, **(dict(q=q_BWHNd, k=k_BWHNd) if heads else {}))
    chosen = _choose(attention, site, plugs, carry)
    if chosen.form is None or (record is not None and record.wants_maps):
        # Maps recorded beside a fast form are those without dropout: its random draw stays inside it.
        drop = dropout_p if chosen.form is None else 0.0
        kept = None if record is None else _MapRecord(record, attention, k_BWHNd.shape[-2])
        maps, next_carry = _maps(chosen, site, plugs, drop, kept)
    if chosen.form is not None:
        out_BWHNd, next_carry = chosen.form(chosen.inputs, chosen.carry)
    elif extra:
        out_BWHNd = maps.to(v_BWHNd.dtype) @ attention.v
    else:
        out_BWHNd, uniform_v = plugs.weigh(maps.to(v_BWHNd.dtype), v_BWHNd)
    if uniform_v.shape[2]:
        out_BWHNd = torch.cat((out_BWHNd, uniform_attention(uniform_v, site)), dim=2)
    return out_BWHNd, next_carry


@dataclass(frozen=True)
class _Chosen:
    """How one attention is computed.

    Args:
        form: The fast form; None where maps are formed.
        inputs: What the fast form takes.
        attention: What maps are formed of: the attention itself, or with wider q and k.
        adds_up: Whether the logits are scores plus bias.
        carry: What the form takes.
    """

    form: FastForm | None
    inputs: Attention
    attention: Attention
    adds_up: bool
    carry: Carry


def _choose(attention: Attention, site: Site, plugs: LayerSockets, carry: Carry) -> _Chosen:
    """The form of one attention: wider q and k where a plug prefers them, and the fast form if there is one."""
    widens = _fused_enabled and plugs.widens(site)
    adds_up = widens or plugs.keeps_scores
    if widens:
        attention, carry = plugs.widen(attention, carry)
    inputs = attention.folded(widen=False) if _fused_enabled and adds_up else attention
    form = plugs.fast_form(inputs, site, widens) if _fused_enabled else None
    if form is None and _fused_enabled:
        refuse_maps(inputs)
    return _Chosen(form, inputs, attention, adds_up, carry)


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
    if not _fused_enabled:
        probs = _bare_probs(q_BWHNd, k_BWHNd, scale, valid_BWN)
        return probs.to(v_BWHNd.dtype) @ v_BWHNd, probs
    out = fused(Attention(q_BWHNd, k_BWHNd, v_BWHNd, scale, valid=valid_BWN))
    return out, _bare_probs(q_BWHNd, k_BWHNd, scale, valid_BWN) if wants_probs else None


def _bare_probs(q_BWHNd: Tensor, k_BWHNd: Tensor, scale: float, valid_BWN: Tensor | None) -> Tensor:
    """The softmax, and the scores before it, in float32 at least: q may hold the channels of many layers."""
    wide = torch.promote_types(q_BWHNd.dtype, torch.float32)
    with without_autocast(q_BWHNd.device):
        scores = (q_BWHNd.to(wide) * scale) @ k_BWHNd.to(wide).transpose(-2, -1)
        if valid_BWN is not None:
            scores = scores.masked_fill(~valid_BWN[:, :, None, None], -torch.inf)
        return F.softmax(scores, dim=-1)


@dataclass(frozen=True)
class _MapRecord:
    """Records what belongs to pairs of a query and a key.

    Args:
        record: Takes the intermediates.
        attention: The attention before q and k widen, of which scores and bias are recorded.
        num_keys: Keys that belong to tokens; the columns of others are left out.
    """

    record: LayerRecord
    attention: Attention
    num_keys: int

    def keep(self, name: str, tensor: Tensor) -> Tensor:
        """Records a tensor; gives the one to go on with, so that what is recorded lies on the way to the output."""
        if self.attention.num_keys == self.num_keys:
            self.record.add(**{name: tensor})
            return tensor
        of_tokens, others = tensor[..., : self.num_keys], tensor[..., self.num_keys :]
        self.record.add(**{name: of_tokens})
        return torch.cat((of_tokens, others), dim=-1)


def _maps(
    chosen: _Chosen, site: Site, plugs: LayerSockets, dropout_p: float, record: _MapRecord | None
) -> tuple[Tensor, Carry]:
    """The attention maps that multiply v, ``(B, W, H, Nq, Nk)``, and the next carry."""
    keep = record.keep if record is not None else _as_it_is
    scores, bias = _scores_and_bias(chosen.attention)
    has_heads = scores.shape[2] > 0
    if record is not None and chosen.attention is not record.attention:
        own_scores, own_bias = _scores_and_bias(record.attention)
        record.keep('scores', own_scores)
        if own_bias is not None:
            record.keep('bias', own_bias)
    elif has_heads:
        scores, bias = keep('scores', scores), None if bias is None else keep('bias', bias)
    if chosen.adds_up:
        logits, carry = (scores if bias is None else scores + bias), chosen.carry
    else:
        logits, carry = plugs.blend_scores(scores, bias, site, chosen.carry)
    logits, carry = plugs.change_logits(logits, site, carry)
    if chosen.attention.mask is not None:
        logits = logits + chosen.attention.mask.to(logits.dtype)
    logits = keep('logits', logits) if has_heads else logits
    probs = plugs.normalise(logits, site, carry)
    probs = keep('probs', probs) if has_heads else probs
    maps, carry = plugs.refine_map(F.dropout(probs, dropout_p) if dropout_p else probs, site, carry)
    return keep('maps', maps), carry


def _as_it_is(name: str, tensor: Tensor) -> Tensor:
    return tensor


def _scores_and_bias(attention: Attention) -> tuple[Tensor, Tensor | None]:
    return scores_of(attention.q, attention.k, attention.scale), attention.expand_bias()


def uniform_attention(v_BWHNd: Tensor, site: Site) -> Tensor:
    """Attention with equal weights for all keys but padding and masked ones, ``(B, W, H, Nq, d)``.

    A query without any valid key, itself padding, gets 0.
    """
    shape = (*v_BWHNd.shape[:3], site.layout.grid.num_tokens, v_BWHNd.shape[4])
    if site.valid_keys is None and site.mask is None:
        return v_BWHNd.mean(dim=-2, keepdim=True).expand(shape)
    return (uniform_maps(site, v_BWHNd).to(v_BWHNd.dtype) @ v_BWHNd).expand(shape)


def uniform_maps(site: Site, like: Tensor) -> Tensor:
    """The maps of :func:`uniform_attention`, ``(B or 1, W or 1, 1, Nq or 1, Nk)``, in float32 at least.

    Args:
        site: Where the tokens are.
        like: Values or maps, for device and precision.
    """
    dtype = at_least_float32(like.dtype)
    if site.valid_keys is not None:
        sees_BWNN = site.valid_keys[:, :, None]
        sees_BWNN = sees_BWNN if site.mask is None else sees_BWNN & (site.mask == 0)
        weights_BWNN = sees_BWNN.to(dtype)
        return (weights_BWNN / weights_BWNN.sum(-1, keepdim=True).clamp(min=1))[:, :, None]
    if site.mask is not None:
        return site.mask.softmax(-1).unsqueeze(2)
    keys = site.key_layout.grid.num_tokens
    return like.new_full((1, 1, 1, 1, keys), 1 / keys, dtype=dtype)
