"""The one place that computes attention, and the one place that fixes the order of the plugs in it.

Shape suffixes used in this package::

    B  images in the batch      W  windows of one image (1 for global attention)      G  B * W
    H  heads                    N  tokens that attend to each other (of one window); Nq queries, Nk keys
    d  width of one head        D  width of a token, H * d

Modules of plugs see images and windows apart, ``(B, W, H, N, d)``, so that none needs to know whether attention is
global or windowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import PairBias, expand_all, merged
from .carry import Carry, QKVCarry, taken
from .forms import call, fused
from .inputs import Attention, ExtraKeys, scores_of
from .intermediates import LayerRecord
from .precision import at_least_float32, softmax, without_autocast
from .site import Site

#: Where the carry holds a block's biases that were made for all blocks at once: one for each module, or None.
BIASES = 'biases'

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


def fuses() -> bool:
    """Whether the fused forms are allowed."""
    return _fused_enabled


def attend(
    q_BWHNd: Tensor, k_BWHNd: Tensor, v_BWHNd: Tensor, *, site: Site, carry: Carry, **settings: Any
) -> tuple[Tensor, Carry]:
    """:func:`attend_windows` with images and windows apart: q ``(B, W, H, Nq, d)``, k and v ``(B, W, H, Nk, d)``.

    Returns:
        The output ``(B, W, H, Nq, d)`` and the carry for the next layer.
    """
    apart = q_BWHNd, k_BWHNd, v_BWHNd
    q, k, v = (t.flatten(0, 1) for t in apart)
    out, carry = attend_windows(q, k, v, windows=q_BWHNd.shape[1], site=site, carry=carry, apart=apart, **settings)
    return out.unflatten(0, q_BWHNd.shape[:2]), carry


def attend_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    windows: int,
    site: Site,
    plugs: Any,
    carry: Carry,
    biases: tuple[PairBias, ...] = (),
    dropout_p: float = 0.0,
    record: LayerRecord | None = None,
    apart: tuple[Tensor, Tensor, Tensor] | None = None,
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
        q: Queries ``(G, H, Nq, d)``. Without any head, the map socket supplies the maps.
        k: Keys ``(G, H, Nk, d)``.
        v: Values ``(G, H or more, Nk, d)``. Heads beyond those of q attend uniformly.
        scale: Factor of the dot products.
        windows: Windows of one image, ``W``.
        site: Where the tokens are, with the mask of the windows and the valid keys
            (:meth:`~vitplug.attention.site.Site.in_windows`). Softmax attention sees padded keys unless
            ``attends_padding`` is False.
        plugs: The layer's plugs, :class:`~vitplug.plugs.LayerPlugs` or :class:`~vitplug.plugs.sockets.Sockets`.
        carry: Tensors that earlier layers handed on.
        biases: The host's own position biases.
        dropout_p: Drop rate of the probabilities, 0 outside training.
        record: Takes the intermediates that were asked for.
        apart: q, k and v with images and windows apart, if the caller has them.

    Returns:
        The output ``(G, H, Nq, d)`` and the carry for the next layer.
    """
    plugs = plugs.bind()
    if plugs.qkv or plugs.tap or record is not None:
        q, k, v = (t.unflatten(0, (-1, windows)) for t in (q, k, v)) if apart is None else apart
        q, k, v, carry = _before_scores(q, k, v, site, plugs, carry, record)
    if plugs.bias:
        biases = (*biases, *_plug_biases(q, windows, site, plugs, carry))
    heads = q.shape[1]
    own = v if v.shape[1] == heads else v[:, :heads]
    a = Attention(q, k, own, scale, windows, biases, site.call_mask(), dropout_p)
    if record is None and _fused_enabled and not plugs.sees_pairs:
        out = fused(a)
    else:
        out, heads, carry = _by_sockets(a, v, site, plugs, carry, record)
    if heads < v.shape[1]:
        rest = uniform_attention(a.by_window(v[:, heads:]), site).flatten(0, 1)
        out = torch.cat((out, rest), dim=1)
    return out, carry


def _before_scores(
    q: Tensor, k: Tensor, v: Tensor, site: Site, plugs: Any, carry: Carry, record: LayerRecord | None
) -> QKVCarry:
    """The sockets ``qkv`` and ``tap``; what is recorded lies on the way to the output."""
    for module in plugs.qkv:
        q, k, v, carry = taken('qkv', module(q, k, v, site, carry), 4)
    for module in plugs.tap:
        carry = module(q, k, v, site, carry)
    if record is not None:
        # A block that reuses the maps of an earlier one has no q and k, and so no scores.
        record.add(v=v, **(dict(q=q, k=k) if q.shape[2] else {}))
    return q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), carry


def _plug_biases(q: Tensor, windows: int, site: Site, plugs: Any, carry: Carry) -> list[PairBias]:
    """The position biases of the bias socket, of which some may have been made for all blocks at once."""
    biases = list(carry.get(BIASES) or plugs.unmade)
    for i, module in enumerate(plugs.bias):
        if biases[i] is None:
            needs = plugs.needs_queries[i]
            biases[i] = module(site, q.unflatten(0, (-1, windows))) if needs else module(site)
    return biases


def _by_sockets(
    a: Attention, v: Tensor, site: Site, plugs: Any, carry: Carry, record: LayerRecord | None
) -> tuple[Tensor, int, Carry]:
    """The output ``(G, H, Nq, d)`` of some value heads, how many they are, and the carry."""
    bare, num_keys = a, a.num_keys
    for module in plugs.extra_keys:
        a = a.with_extra(ExtraKeys(*taken('extra_keys', module(bare.by_window(bare.q), site), 3)))
    wide, form = a, None
    widens = _fused_enabled and plugs.widens(site)
    if widens:
        wide, carry = plugs.scores[0].widen(a._replace(biases=merged(a.biases)), carry)
    if _fused_enabled:
        form = plugs.fast_form(wide, site, widens) if plugs.pairs[widens:] else lambda a, carry: (fused(a), carry)
    if form is None or (record is not None and record.wants_maps):
        # Maps recorded beside a fast form are those without dropout: its random draw stays inside it.
        drop = a.dropout_p if form is None else 0.0
        kept = None if record is None else _MapRecord(record, a, num_keys)
        maps, next_carry = _maps(wide, widens or len(plugs.scores) == 0, site, plugs, carry, drop, kept)
    if form is not None:
        out, carry = form(wide, carry)
        return out, a.v.shape[1], carry
    maps = maps.to(v.dtype)
    if plugs.extra_keys:
        return maps.flatten(0, 1) @ a.v, a.v.shape[1], next_carry
    if plugs.weighs is not None:
        out, rest = plugs.weighs.weigh(maps, a.by_window(v))
        return out.flatten(0, 1), v.shape[1] - rest.shape[2], next_carry
    heads = maps.shape[2]
    return maps.flatten(0, 1) @ v[:, :heads], heads, next_carry


def attend_bare(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, valid_BN: Tensor | None = None, wants_probs: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Attention without sockets, bias and dropout; v may have another width than q and k::

        out = softmax(scale * q @ k^T) @ v          over the valid keys

    Args:
        q: Queries ``(B, H, Nq, width)``.
        k: Keys ``(B, H, Nk, width)``.
        v: Values ``(B, H, Nk, width of v)``.
        scale: Factor of the dot products.
        valid_BN: True for the keys that count, at least one in each image; None for all.
        wants_probs: Whether the probabilities are to be returned too.

    Returns:
        The output ``(B, H, Nq, width of v)``, and the probabilities ``(B, 1, H, Nq, Nk)`` where they are
        wanted or had to be formed, None elsewhere. They lie on the way to the output only in the plain form.
    """
    probs, valid = None, None if valid_BN is None else valid_BN[:, None, None]
    if wants_probs or not _fused_enabled:
        # In float32 at least: q may hold the channels of many layers.
        wide = at_least_float32(q.dtype)
        with without_autocast(q.device):
            scores = (q.to(wide) * scale) @ k.to(wide).transpose(-2, -1)
            probs = softmax(scores if valid is None else scores.masked_fill(~valid, -torch.inf)).unsqueeze(1)
    if probs is None or _fused_enabled:
        return call(q, k, v, valid, 0.0, scale), probs
    return probs.squeeze(1).to(v.dtype) @ v, probs


class _MapRecord:
    """Records what belongs to pairs of a query and a key.

    Args:
        record: Takes the intermediates.
        attention: The attention before q and k widen, of which scores and bias are recorded.
        num_keys: Keys that belong to tokens; the columns of others are left out.
    """

    def __init__(self, record: LayerRecord, attention: Attention, num_keys: int):
        self.record, self.attention, self.num_keys = record, attention, num_keys

    def keep(self, name: str, tensor: Tensor) -> Tensor:
        """Records a tensor; gives the one to go on with, so that what is recorded lies on the way to the output."""
        if self.attention.num_keys == self.num_keys:
            self.record.add(**{name: tensor})
            return tensor
        of_tokens, others = tensor[..., : self.num_keys], tensor[..., self.num_keys :]
        self.record.add(**{name: of_tokens})
        return torch.cat((of_tokens, others), dim=-1)


def _maps(
    a: Attention, adds_up: bool, site: Site, plugs: Any, carry: Carry, dropout_p: float, record: _MapRecord | None
) -> tuple[Tensor, Carry]:
    """The attention maps that multiply v, ``(B, W, H, Nq, Nk)``, and the next carry.

    Args:
        a: The attention, perhaps with wider q and k.
        adds_up: Whether the logits are scores plus bias.
        site: Where the tokens are.
        plugs: The sockets.
        carry: Tensors that earlier layers handed on.
        dropout_p: Drop rate of the probabilities.
        record: Takes the intermediates.
    """
    scores, bias = _scores_and_bias(a)
    has_heads = scores.shape[2] > 0
    keep = record.keep if record is not None and has_heads else lambda name, tensor: tensor
    if record is not None and a is not record.attention:
        own_scores, own_bias = _scores_and_bias(record.attention)
        record.keep('scores', own_scores)
        if own_bias is not None:
            record.keep('bias', own_bias)
    else:
        scores, bias = keep('scores', scores), None if bias is None else keep('bias', bias)
    if adds_up:
        logits = scores if bias is None else scores + bias
    else:
        logits, carry = taken('scores', plugs.scores[0](scores, bias, site, carry), 2)
    for module in plugs.logits:
        logits, carry = taken('logits', module(logits, site, carry), 2)
    if a.mask is not None:
        logits = logits + a.mask[..., : a.num_keys].to(logits.dtype)
    logits = keep('logits', logits)
    probs = plugs.normalise[0](logits, site, carry) if plugs.normalise else softmax(logits)
    probs = keep('probs', probs)
    maps = F.dropout(probs, dropout_p) if dropout_p else probs
    for module in plugs.map:
        maps, carry = taken('map', module(maps, site, carry), 2)
    return maps if record is None else record.keep('maps', maps), carry


def _scores_and_bias(a: Attention) -> tuple[Tensor, Tensor | None]:
    return a.by_window(scores_of(a.q, a.k, a.scale)), expand_all(a.biases)


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
        return site.mask.to(dtype).softmax(-1).unsqueeze(2)
    keys = site.key_layout.grid.num_tokens
    return like.new_full((1, 1, 1, 1, keys), 1 / keys, dtype=dtype)
