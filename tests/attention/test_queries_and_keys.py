"""Queries and keys on grids of their own: every form of attention, and the plugs in it, against the equations."""

from dataclasses import dataclass
from itertools import product
from unittest import mock

import attention_oracle as oracles
import pytest
import torch
from attention_oracle import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_plug import Probe
from refiner_oracle import bottleneck, refined, weighed
from torch import Tensor, nn
from torch.testing import assert_close

from vitplug.attention import (
    DenseBias,
    GlobalLayout,
    LayerRecord,
    OffsetBias,
    QueryBias,
    Site,
    WindowLayout,
    cpu,
    fused_attention,
    tuning,
)
from vitplug.compat import replace
from vitplug.plugs import BlockShape, LayerPlan, LayerPlugs, Plug, PlugSet, Refiner, ResidualAttention


@dataclass
class Problem:
    """Layers at one site."""

    layers: list[oracles.Layer]
    site: Site
    valid_queries: Tensor  # (B, W, Nq), True for those that count
    valid_keys: Tensor  # (B, W, Nk)
    fused: bool  # whether fused forms are allowed
    device: str  # the type of device whose forms are taken

    def attend(self, plugs: list[LayerPlugs], carry=()) -> list[Tensor]:
        """The outputs of all layers."""
        carry, outs = dict(carry), []
        with fused_attention(self.fused), tuning.tuned_for(self.device), mock.patch.object(cpu, 'PAIRS_FROM', 12):
            for layer, of_layer in zip(self.layers, plugs, strict=True):
                out, carry = layer.attend(site=self.site, plugs=of_layer, carry=carry)
                outs.append(out)
        return outs

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for layer in self.layers for leaf in (layer.q, layer.k, layer.v, *layer.leaves)]

    @property
    def unmasked(self) -> Tensor:
        """True for pairs that the mask lets see each other, ``(B, W, 1, Nq, Nk)``."""
        shape = (*self.valid_queries.shape, self.valid_keys.shape[-1])
        mask = torch.zeros(shape) if self.site.mask is None else self.site.mask.expand(shape)
        return (mask == 0)[:, :, None]

    @property
    def counts(self) -> Tensor:
        """1 for pairs whose key counts, 0 for masked ones and for padding."""
        return (self.unmasked & self.valid_keys[:, :, None, None]).double()

    @property
    def seen(self) -> Tensor:
        """1 for pairs that the softmax sees: padding too where ``attends_padding`` says so."""
        return self.unmasked.double() if self.site.attends_padding else self.counts


def tokens_of_windows(layout) -> Tensor:
    """Indices into the tokens of the map, ``(W, N)``, windows and their tokens in reading order."""
    if not layout.is_windowed:
        return torch.arange(layout.num_prefix + layout.height * layout.width)[None]
    side = layout.window
    corners = product(range(0, layout.height, side), range(0, layout.width, side))
    inside = list(product(range(side), repeat=2))
    return torch.tensor([[(y + i) * layout.width + x + j for i, j in inside] for y, x in corners])


@st.composite
def layouts(draw):
    """Of the queries, and of the keys: both global, or as many windows of sizes of their own. None: one for both."""
    rows, columns = draw(st.sampled_from([(1, 1), (1, 2), (2, 2)]))

    def one():
        if rows * columns > 1:
            side = draw(st.integers(1, 3))
            return WindowLayout(rows * side, columns * side, side)
        return GlobalLayout(draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 2)))

    return one(), one() if draw(st.booleans()) else None


KINDS = st.sets(st.sampled_from(['offset', 'query', 'dense']))


@st.composite
def problems(draw, num_layers=1, kinds=KINDS, more_values=st.just(0), dims=st.integers(1, 3)):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    def mostly(*shape):
        return torch.rand(shape, generator=generator) < 0.7

    layout, keys = draw(layouts())
    tokens, key_tokens = tokens_of_windows(layout), tokens_of_windows(keys or layout)
    (windows, nq), nk = tokens.shape, key_tokens.shape[1]
    images, heads, dims = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(dims)
    mask = None
    if draw(st.booleans()):
        lets_see = mostly(draw(st.sampled_from([1, images])), draw(st.sampled_from([1, windows])), nq, nk)
        # Every query sees one key at least.
        lets_see[..., 0] = True
        mask = torch.where(lets_see, 0.0, -100.0).double()
    padding = draw(st.sampled_from([None, 'seen', 'hidden']))
    valid = mostly(images, tokens.numel()) | (padding is None)
    valid[:, tokens[:, 0]] = True
    valid_keys = valid[:, tokens]
    site = Site(layout, keys, mask=mask, valid=valid if padding else None, attends_padding=padding != 'hidden')
    if keys is not None:
        valid_keys = mostly(images, windows, nk) | (padding is None)
        valid_keys[..., 0] = True
        if draw(st.booleans()):  # of the keys alone
            valid = torch.ones_like(valid)
            site = replace(site, valid=None)
        site = replace(site, valid_keys=valid_keys if padding else None)
    chosen = draw(kinds)
    made = [
        _layer(draw, leaf, (images, windows, heads), dims, site, chosen, draw(more_values)) for _ in range(num_layers)
    ]
    fused, device = draw(st.booleans()), draw(st.sampled_from(['cpu', 'cuda']))
    site = site.in_windows(torch.device('cpu'))
    return Problem(made, site, valid[:, tokens], valid_keys, fused, device)


def _layer(draw, leaf, lead, dims, site, kinds, more_values):
    images, windows, heads = lead
    pairs = site.pairs
    queries, keys = pairs.queries, pairs.keys
    nq, nk = queries.num_tokens, keys.num_tokens
    q, k, v = leaf(*lead, nq, dims), leaf(*lead, nk, dims), leaf(images, windows, heads + more_values, nk, dims)
    layer = oracles.Layer(q, k, v)
    if 'offset' in kinds:
        table = leaf(draw(st.sampled_from([1, heads])), *pairs.table_size)
        layer.add(OffsetBias(table, pairs), oracles.offset_bias(table, queries, keys), table)
    if 'query' in kinds:
        rows, columns = (leaf(*lead, queries.height * queries.width, side) for side in (keys.height, keys.width))
        expanded = oracles.query_bias(rows, columns, queries, keys)
        layer.add(QueryBias(rows, columns, pairs), expanded, rows, columns)
    if 'dense' in kinds:
        values = leaf(*(draw(st.sampled_from([1, size])) for size in lead), nq, nk)
        layer.add(DenseBias(values), values, values)
    return layer


# --- attention ---


@given(problems(more_values=st.integers(0, 1)))
def test_attention_is_its_equation(problem):
    """In the plain form and fused, for a CPU and for a GPU; heads without queries attend uniformly."""
    (layer,) = problem.layers
    heads = layer.q.shape[2]
    uniform = problem.counts / problem.counts.sum(-1, keepdim=True)
    expected = torch.cat(
        (
            oracles.probs(layer.scores() + layer.bias, problem.seen) @ layer.v[:, :, :heads],
            uniform @ layer.v[:, :, heads:],
        ),
        dim=2,
    )
    assert_same(problem.attend([LayerPlugs()]), [expected], problem.leaves)


def build(plug: Plug, problem: Problem):
    """Modules of a plug for the problem's layers, in float64."""
    heads, dims = problem.layers[0].q.shape[2], problem.layers[0].q.shape[4]
    shape = plug.shape_block(BlockShape.stock(heads * dims, heads, 8), 0, len(problem.layers))
    plans = [LayerPlan(i, len(problem.layers), heads * dims, shape, problem.site) for i in range(len(problem.layers))]
    network, layers = PlugSet([plug], len(plans)).build(plans)
    return network.double(), [layer.double() for layer in layers]


@given(problems(kinds=st.just(['offset', 'query'])))
@settings(max_examples=30)
def test_scores_are_those_of_content_whatever_the_bias(problem):
    """Recorded, and in the scores socket: a bias by query is not folded into them."""
    (layer,) = problem.layers
    record = LayerRecord(frozenset(['scores', 'bias', 'logits', 'probs']))
    seen = []

    def witness(weight, scores, bias, site, carry):
        seen.extend((scores, bias))
        return scores + bias, carry

    _, (plugs,) = build(Probe('witness', scores=witness), problem)
    with fused_attention(problem.fused), tuning.tuned_for(problem.device), torch.no_grad():
        layer.attend(site=problem.site, plugs=LayerPlugs(), carry={}, record=record)
        layer.attend(site=problem.site, plugs=plugs, carry={})
    for scores, bias in ((record.kept['scores'], record.kept['bias']), seen):
        assert_close(scores, layer.scores())
        assert_close(bias, layer.bias)
    assert_close(record.kept['probs'], oracles.probs(layer.scores() + layer.bias, problem.seen))


# --- plugs ---


@pytest.mark.parametrize('bias_mode', ['after', 'blend', 'after_carried'])
@given(problem=problems(num_layers=3), low_memory=st.booleans())
@settings(max_examples=40)
def test_residual_attention_is_its_equation(bias_mode, problem, low_memory):
    """Scores handed on, and written out as a sum."""
    network, plugs = build(ResidualAttention(alpha=0.3, bias_mode=bias_mode, low_memory=low_memory), problem)
    (alpha,) = network.parameters()
    expected, handed = [], None
    for layer in problem.layers:
        logits, handed = oracles.blended(alpha, layer.scores(), handed, layer.bias, bias_mode)
        expected.append(oracles.probs(logits, problem.seen) @ layer.v)
    assert_same(problem.attend(plugs, network.start()), expected, [*problem.leaves, alpha])


REFINERS = {
    'dla': dict(expansion=0),
    'dla along lines': dict(expansion=0, constraint='rowcol'),
    'dla on the image': dict(expansion=0, constraint='spatial'),
    'full': dict(expansion=2),
    'lines': dict(expansion=2, constraint='rowcol', kernel_size=5),
    'on the image': dict(expansion=2, constraint='spatial'),
    'more heads': dict(expansion=2, reduction=False),
    # On the plane of queries and keys, at the configured number of keys, by statistics that were collected.
    'bottleneck': dict(expansion=2, mode='mbconv', init='default'),
}


def noisy(module: nn.Module, seed: int) -> None:
    """Random parameters, and statistics of batch norms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for name, tensor in module.named_buffers():
            if 'running' in name:
                tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.1)


@pytest.mark.parametrize('case', REFINERS)
@given(problem=problems(dims=st.sampled_from([2, 4])), seed=st.integers(0, 9))
@settings(max_examples=25)
def test_refiner_is_its_equation(case, problem, seed):
    """Convolved maps, and convolved values."""
    (layer,), settings = problem.layers, REFINERS[case]
    _, (plugs,) = build(Refiner(**settings), problem)
    (module,) = plugs.eval().at('map')
    noisy(module, seed)
    maps = oracles.probs(layer.scores() + layer.bias, problem.seen)
    maps = maps if problem.site.attends_padding else maps * problem.valid_queries[:, :, None, :, None]
    if case == 'bottleneck':
        maps = bottleneck(maps, module, training=False)
    else:
        maps = refined(maps, module, problem.site.pairs.keys, settings.get('constraint', 'none'))
    expected = weighed(maps * problem.seen, layer.v)
    assert_same(problem.attend([plugs]), [expected], [*problem.leaves, *module.parameters()])
