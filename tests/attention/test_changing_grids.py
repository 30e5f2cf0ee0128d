"""Residual attention where blocks lie on different grids and have different heads, against the equations."""

import math
from dataclasses import dataclass
from itertools import product

import attention_oracle as oracles
import pytest
import torch
from attention_oracle import assert_same
from cases import HOSTS, images, randomize
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, OffsetBias, QueryBias, Site, TokenGrid, fused_attention
from vitplug.plugs import BlockShape, LayerPlan, PlugSet, ResidualAttention

# --- the oracle ---


def sources_of(before: int, now: int) -> list[range]:
    """What each new row takes the mean of: the rows it covers, or the nearest one."""
    if now > before:
        return [range(math.floor(i * before / now), math.floor(i * before / now) + 1) for i in range(now)]
    return [range(math.floor(i * before / now), math.ceil((i + 1) * before / now)) for i in range(now)]


def mixing(before: TokenGrid, now: TokenGrid) -> Tensor:
    """What each new token takes of each old one, ``(new, old)``; prefix tokens stay."""
    weights = torch.zeros(now.num_tokens, before.num_tokens, dtype=torch.float64)
    weights[: now.num_prefix, : now.num_prefix] = torch.eye(now.num_prefix)
    rows, columns = (sources_of(*sides) for sides in zip(before.hw, now.hw, strict=True))
    for token, (ys, xs) in enumerate(product(rows, columns), now.num_prefix):
        for y, x in product(ys, xs):
            weights[token, before.num_prefix + y * before.width + x] = 1 / (len(ys) * len(xs))
    return weights


def resize_oracle(scores: Tensor, before: Site, now: Site) -> Tensor:
    queries = mixing(before.layout.grid, now.layout.grid)
    keys = mixing((before.keys or before.layout).grid, (now.keys or now.layout).grid)
    return torch.einsum('iq,bwhqk,jk->bwhij', queries, scores, keys)


def heads_oracle(scores: Tensor, heads: int, transition: str) -> Tensor:
    before = scores.shape[2]
    if before == heads:
        return scores
    if transition == 'repeat':
        return torch.stack([scores[:, :, h * before // heads] for h in range(heads)], dim=2)
    return torch.stack([sum(scores[:, :, h] for h in range(before)) / before] * heads, dim=2)


# --- the plug ---


@dataclass(kw_only=True)
class Layer(oracles.Layer):
    """One block: where it is, its q, k and v, and its biases."""

    plan: LayerPlan


@st.composite
def chains(draw):
    """Blocks on a few grids, so that some follow one on the same; with and without biases."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    prefix, side = draw(st.integers(0, 1)), st.integers(1, 5)
    grids = [GlobalLayout(draw(side), draw(side), prefix) for _ in range(2)]
    grids = st.sampled_from(grids)
    batch, dims, kinds = draw(st.integers(1, 2)), 3, draw(st.sets(st.sampled_from(['offset', 'query'])))
    heads, stage, layers = draw(st.sampled_from([1, 2])), 0, []
    count = draw(st.integers(2, 4))

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    for index in range(count):
        if index and draw(st.booleans()):
            stage, heads = stage + 1, heads * draw(st.sampled_from([1, 2]))
        site = Site(draw(grids), draw(st.none() | grids), index=index)
        pairs = site.pairs
        plan = LayerPlan(index, count, heads * dims, BlockShape.stock(heads * dims, heads, 8), site, stage)
        lead, (nq, nk) = (batch, 1, heads), (pairs.queries.num_tokens, pairs.keys.num_tokens)
        layer = Layer(leaf(*lead, nq, dims), leaf(*lead, nk, dims), leaf(*lead, nk, dims), plan=plan)
        if 'offset' in kinds:
            table = leaf(heads, *pairs.table_size)
            layer.add(OffsetBias(table, pairs), oracles.offset_bias(table, pairs.queries, pairs.keys), table)
        if 'query' in kinds:
            rows, columns = (leaf(*lead, nq - prefix, n) for n in pairs.keys.hw)
            expanded = oracles.query_bias(rows, columns, pairs.queries, pairs.keys)
            layer.add(QueryBias(rows, columns, pairs), expanded, rows, columns)
        layers.append(layer)
    return layers


def recursion(layers: list[Layer], alpha: Tensor, bias_mode: str, heads: str, resets: bool) -> list[Tensor]:
    """The outputs, block by block."""
    outs, handed, last = [], None, None
    for layer in layers:
        site, scores = layer.plan.site, layer.scores()
        before = None
        if last is not None and not (resets and last.plan.stage != layer.plan.stage):
            before = heads_oracle(resize_oracle(handed, last.plan.site, site), scores.shape[2], heads)
        logits, handed = oracles.blended(alpha, scores, before, layer.bias, bias_mode)
        outs.append(oracles.probs(logits) @ layer.v)
        last = layer
    return outs


@pytest.mark.parametrize('bias_mode', ['after', 'blend', 'after_carried'])
@given(
    layers=chains(),
    heads=st.sampled_from(['mean', 'repeat']),
    resets=st.booleans(),
    fused=st.booleans(),
    align=st.sampled_from(['index', 'parity']),
)
@settings(max_examples=60)
def test_residual_attention_on_changing_grids(bias_mode, layers, heads, resets, align, fused):
    """Values and gradients, those of alpha too: handed-on scores are not detached. The plan's sizes do not matter."""
    plans = [layer.plan for layer in layers]
    stages = [plan.stage for plan in plans]
    assume(not resets or len(set(stages)) < len(stages))
    plug = ResidualAttention(
        alpha=0.3,
        bias_mode=bias_mode,
        head_transition=heads,
        stage_transition='reset' if resets else 'pool',
        window_align=align,
    )
    network, modules = PlugSet([plug], len(plans)).build(plans)
    (alpha,) = network.double().parameters()
    carry, outs = network.start(), []
    with fused_attention(fused):
        for layer, of_layer in zip(layers, modules, strict=True):
            out, carry = layer.attend(site=layer.plan.site, plugs=of_layer, carry=carry)
            outs.append(out)
    expected = recursion(layers, alpha, bias_mode, heads, resets)
    leaves = [leaf for layer in layers for leaf in (layer.q, layer.k, layer.v, *layer.leaves)]
    assert_same(outs, expected, [*leaves, alpha])


# --- its hosts ---


@pytest.mark.parametrize('heads', ['mean', 'repeat'])
@pytest.mark.parametrize('host', ['vit', 'vit-no-cls', 'pit', 'pit-distilled', 'mvit', 'mvit-cls', 'lvt'])
def test_hosts_of_global_attention_follow_the_recursion(host, heads):
    """At another image size than the configured one; biases are added after the blend."""
    plugs = [dict(type='ResidualAttention', head_transition=heads, alpha=0.4), dict(type='GaussianAttentionBias')]
    model, size = randomize(HOSTS[host](plugs=plugs)).double().eval(), (37, 51)
    (alpha,) = (p for name, p in model.named_parameters() if 'residual_alpha' in name)
    _, found = model.forward_intermediates(images(*size), ('scores', 'bias', 'logits', 'site'))
    handed = last = None
    for index, own in found['scores'].items():
        site = found['site'][index]
        if handed is not None:
            own = alpha * own + (1 - alpha) * heads_oracle(resize_oracle(handed, last, site), own.shape[2], heads)
        assert_close(found['logits'][index], own + found['bias'][index])
        handed, last = own, site
