"""Gaussian biases against their equation, pair by pair; `test_composition.py` has tables and networks of offsets."""

import pytest
import torch
from attention_oracle import assert_same, places
from cases import images, mvit, randomize, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs.gaussian_bias import Gaussian
from vitplug.plugs.position_bias import OffsetMlp


def test_the_table_of_a_network_is_wide_in_mixed_precision():
    """Added up in bfloat16, as on a GPU, the gradient of an offset of many pairs would end at 256 times one of them."""
    with torch.autocast('cpu', torch.bfloat16):
        assert OffsetMlp(1, 8, 0.0)(Site(GlobalLayout(4, 4))).table.dtype == torch.float32


grids = st.builds(GlobalLayout, st.integers(1, 4), st.integers(1, 4), st.integers(0, 1))
sites = st.builds(Site, grids, st.none() | grids)


@given(site=sites, heads=st.integers(1, 2), seed=st.integers(0, 9), reference=st.none() | st.just((3, 7)))
@settings(max_examples=40)
def test_gaussian_is_its_equation(site, heads, seed, reference):
    """Between the centres of tokens, in tokens of the reference along each axis, or of the finer grid."""
    generator = torch.Generator().manual_seed(seed)
    module = Gaussian(heads, 1.0, 1.0, reference).double()
    with torch.no_grad():
        module.gab_amplitude.copy_(torch.randn(heads, generator=generator))
        module.gab_sigma.copy_(0.5 + torch.rand(heads, generator=generator))
    queries, keys = site.pairs.queries, site.pairs.keys
    units = reference or [max(sides) for sides in zip(queries.hw, keys.hw, strict=True)]

    def of_pair(query, key):
        if query is None or key is None:
            return torch.zeros(heads, dtype=torch.float64)
        sides = zip(query, key, queries.hw, keys.hw, units, strict=True)
        distance = sum(((q + 0.5) * unit / of_q - (k + 0.5) * unit / of_k) ** 2 for q, k, of_q, of_k, unit in sides)
        return module.gab_amplitude**2 * torch.exp(-distance / (2 * module.gab_sigma**2))

    rows = [torch.stack([of_pair(query, key) for key in places(keys)], -1) for query in places(queries)]
    expected = torch.stack(rows, -2)
    assert_same([module(site).expand().view_as(expected)], [expected], list(module.parameters()))


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
