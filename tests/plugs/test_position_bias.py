"""Position biases against their equations, pair by pair."""

import itertools
import math

import pytest
import torch
from attention_oracle import assert_same
from cases import images, mvit, randomize, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, GridPair, Site, TokenGrid
from vitplug.plugs.gaussian_bias import Gaussian
from vitplug.plugs.position_bias import OffsetMlp, OffsetTable

grids = st.builds(GlobalLayout, st.integers(1, 4), st.integers(1, 4), st.integers(0, 1))
sites_of_one_grid = st.builds(Site, grids)
sites = st.one_of(sites_of_one_grid, st.builds(Site, grids, grids))


def pairwise(site, heads, value):
    """``(H, Nq, Nk)`` from a function of (head, y_query, x_query, y_key, x_key); prefix tokens get 0."""
    queries, keys = site.layout, site.keys or site.layout
    (nq, q_places), (nk, k_places) = (
        (grid.num_prefix + grid.height * grid.width, list(itertools.product(range(grid.height), range(grid.width))))
        for grid in (queries, keys)
    )
    bias = torch.zeros(heads, nq, nk, dtype=torch.float64)
    for h, (i, q), (j, k) in itertools.product(range(heads), enumerate(q_places), enumerate(k_places)):
        bias[h, queries.num_prefix + i, keys.num_prefix + j] = value(h, *q, *k)
    return bias


def table(module, height, width):
    """The values of all offsets on a grid, ``(H, 2 height - 1, 2 width - 1)``."""
    return module(Site(GlobalLayout(height, width))).table


def assert_is(module, site, heads, value):
    got, expected = module(site).expand(), pairwise(site, heads, value)
    assert_same([got.view_as(expected)], [expected], list(module.parameters()))


@given(site=sites, heads=st.integers(1, 2), seed=st.integers(0, 9))
@settings(max_examples=20)
def test_gaussian_is_its_equation(site, heads, seed):
    """Between the centres of tokens; where grids differ, in tokens of the finer one along each axis."""
    generator = torch.Generator().manual_seed(seed)
    module = Gaussian(heads, 1.0, 1.0, None).double()
    with torch.no_grad():
        module.gab_amplitude.copy_(torch.randn(heads, generator=generator))
        module.gab_sigma.copy_(0.5 + torch.rand(heads, generator=generator))
    (q_height, q_width), (k_height, k_width) = site.layout.hw, (site.keys or site.layout).hw
    height, width = max(q_height, k_height), max(q_width, k_width)

    def value(h, y_q, x_q, y_k, x_k):
        dy = (y_q + 0.5) * height / q_height - (y_k + 0.5) * height / k_height
        dx = (x_q + 0.5) * width / q_width - (x_k + 0.5) * width / k_width
        distance = dy**2 + dx**2
        return module.gab_amplitude[h] ** 2 * torch.exp(-distance / (2 * module.gab_sigma[h] ** 2))

    assert_is(module, site, heads, value)


def test_relative_sigma_grows_with_the_grid():
    module = Gaussian(1, 2.0, 5.0, (7, 7))
    small, large = (module(Site(GlobalLayout(*hw))).expand()[0, 0].view(hw) for hw in ((7, 7), (14, 21)))
    assert_close(large[::2, ::3], small)


def test_relative_sigma_is_that_of_the_finer_grid():
    """At the configured size both kinds of sigma are the same, though queries or keys are pooled."""
    settings, x = dict(type='GaussianAttentionBias', sigma=1.5), images(32, 32, dtype=torch.float32)
    hosts = [mvit(plugs=[dict(settings, coord=coord)]) for coord in ('token', 'relative')]
    for host in hosts:
        host.load_state_dict(hosts[0].state_dict())
    assert_close(*(host.forward_intermediates(x, 'bias')[1]['bias'] for host in hosts))


def test_gaussian_survives_a_vanishing_sigma():
    module = Gaussian(1, 2.0, 5.0, None)
    with torch.no_grad():
        module.gab_sigma.zero_()
    values = module(Site(GlobalLayout(3, 3))).expand()
    values.sum().backward()
    assert values.isfinite().all() and all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize('change', ['hook', 'parameters of the block'])
def test_what_acts_on_one_block_is_not_passed_by(change):
    """Although the biases of all blocks are made at once: the third block's becomes 0."""
    model = randomize(vit(plugs=[dict(type='GaussianAttentionBias')])).double().eval()
    x, block = images(32, 40), model.plugged_blocks()[2]
    [module] = block.plugs.at('bias')
    with torch.no_grad():
        before = model(x)[0]
        expected = randomize(vit(plugs=[dict(type='GaussianAttentionBias')])).double().eval()
        expected.plugged_blocks()[2].plugs.at('bias')[0].gab_amplitude.zero_()

        if change == 'hook':
            module.register_forward_hook(lambda _, args, bias: bias.scaled(0.0))
        else:
            block.register_forward_pre_hook(lambda *_: module.gab_amplitude.mul_(0) is None or None)
        assert_close(model(x)[0], expected(x)[0])
        assert not torch.allclose(model(x)[0], before)


def test_frozen_blocks_need_no_graph():
    model = vit(plugs=[dict(type='GaussianAttentionBias')], frozen_stages=2).train()
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), ('block',))
    assert [tokens.requires_grad for tokens in found['block'].values()] == [False, False, True, True]


@given(site=sites_of_one_grid, heads=st.integers(1, 3))
@settings(max_examples=20)
def test_table_is_looked_up_by_offset(site, heads):
    module = OffsetTable(site.pairs, heads).double()
    height, width = site.layout.hw

    def value(h, y_q, x_q, y_k, x_k):
        return module.rel_pos_table[h, y_q - y_k + height - 1, x_q - x_k + width - 1]

    assert_is(module, site, heads, value)


def test_table_of_another_grid_keeps_its_middle():
    grid = TokenGrid(4, 6)
    module = OffsetTable(GridPair(grid, grid), 2)
    resized = table(module, 8, 9)
    assert resized.shape == (2, 15, 17)
    assert_close(resized[:, 7, 8], module.rel_pos_table[:, 3, 5])


@given(site=sites_of_one_grid, heads=st.integers(1, 3))
@settings(max_examples=20)
def test_mlp_is_its_equation(site, heads):
    module = randomize(OffsetMlp(heads, 5, 0.125)).double().eval()

    def spaced(t):
        return math.copysign(math.log(1 + abs(t)), t)

    def value(h, y_q, x_q, y_k, x_k):
        offset = torch.tensor([spaced(y_q - y_k), spaced(x_q - x_k)], dtype=torch.float64)
        hidden = torch.clamp(module.fc1.weight @ offset + module.fc1.bias, min=0)
        return module.fc2.weight[h] @ hidden + module.fc2.bias[h]

    assert_is(module, site, heads, value)
