"""Position biases against their equations, pair by pair."""

import copy
import itertools
import math

import pytest
import torch
from cases import HOSTS, images, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, GridPair, Site, TokenGrid
from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.plugs.gaussian_bias import Gaussian
from vitplug.plugs.position_bias import OffsetMlp, OffsetTable

sides = st.integers(1, 6)


def pairwise(grid, heads, value):
    """``(H, N, N)`` from a function of (head, y_query, x_query, y_key, x_key); prefix tokens get 0."""
    places = list(itertools.product(range(grid.height), range(grid.width)))
    bias = torch.zeros(heads, grid.num_tokens, grid.num_tokens, dtype=torch.float64)
    for h, (i, q), (j, k) in itertools.product(range(heads), enumerate(places), enumerate(places)):
        bias[h, grid.num_prefix + i, grid.num_prefix + j] = value(h, *q, *k)
    return bias


def grid_site(grid):
    return Site(GlobalLayout(grid.height, grid.width, grid.num_prefix))


def table(module, height, width):
    """The values of all offsets on a grid, ``(H, 2 height - 1, 2 width - 1)``."""
    return module(Site(GlobalLayout(height, width))).table


def assert_same_with_gradients(module, grid, oracle):
    got = module(grid_site(grid)).expand()
    expected = oracle()
    assert_close(got, expected)
    g = torch.linspace(-1, 2, got.numel(), dtype=got.dtype).view_as(got)
    params = list(module.parameters())
    assert_close(torch.autograd.grad(got, params, g), torch.autograd.grad(expected, params, g))


@given(height=sides, width=sides, prefix=st.integers(0, 2), heads=st.integers(1, 2), data=st.data())
def test_rows_cut_from_the_table_are_those_of_all_pairs(height, width, prefix, heads, data):
    grid = TokenGrid(height, width, prefix)
    rows = slice(*sorted(data.draw(st.tuples(*[st.integers(0, grid.num_tokens)] * 2).filter(lambda r: r[0] != r[1]))))
    pairs = GridPair(grid, grid)
    table = torch.randn(heads, 2 * height - 1, 2 * width - 1, dtype=torch.float64, requires_grad=True)
    row_table, expected = pairs.to_row_table(table), pairs.expand(table)[:, rows]
    got = torch.zeros_like(expected)
    with torch.no_grad():
        pairs.add_rows(got, row_table, rows)
    assert_close(got, expected, rtol=0, atol=0)
    g, grad_table_of_rows = torch.randn_like(got), torch.zeros_like(row_table)
    pairs.add_to_row_table(grad_table_of_rows, rows, g)
    (grad,) = torch.autograd.grad(row_table, table, grad_table_of_rows)
    assert_close(grad, *torch.autograd.grad(expected, table, g))


@given(height=sides, width=sides, prefix=st.integers(0, 2), heads=st.integers(1, 2), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_gaussian_is_its_equation(height, width, prefix, heads, seed):
    generator = torch.Generator().manual_seed(seed)
    module = Gaussian(heads, 1.0, 1.0, None).double()
    with torch.no_grad():
        module.gab_amplitude.copy_(torch.randn(heads, generator=generator))
        module.gab_sigma.copy_(0.5 + torch.rand(heads, generator=generator))
    grid = TokenGrid(height, width, prefix)

    def value(h, y_q, x_q, y_k, x_k):
        distance = (y_q - y_k) ** 2 + (x_q - x_k) ** 2
        return module.gab_amplitude[h] ** 2 * torch.exp(-distance / (2 * module.gab_sigma[h] ** 2))

    assert_same_with_gradients(module, grid, lambda: pairwise(grid, heads, value))


def test_gaussian_of_the_papers_start():
    """The figures follow from A = 2, sigma = 5."""
    values = table(Gaussian(1, 2.0, 5.0, None), 14, 14)[0]
    assert_close(values[13, 13].item(), 4.0)
    assert_close(values[13, 20].item(), 4 * math.exp(-49 / 50))
    assert_close(values[26, 26].item(), 4 * math.exp(-338 / 50))


def test_relative_sigma_grows_with_the_grid():
    module = Gaussian(1, 2.0, 5.0, TokenGrid(7, 7))
    small, large = table(module, 7, 7), table(module, 14, 21)
    assert_close(large[0, 13::2, 20::3], small[0, 6:, 6:])


def test_gaussian_survives_a_vanishing_sigma():
    module = Gaussian(1, 2.0, 5.0, None)
    with torch.no_grad():
        module.gab_sigma.zero_()
    values = table(module, 3, 3)
    values.sum().backward()
    assert values.isfinite().all() and all(p.grad.isfinite().all() for p in module.parameters())


def test_gradient_vanishes_at_zero_amplitude():
    """Why the plug refuses to start there."""
    module = Gaussian(1, 2.0, 5.0, None)
    with torch.no_grad():
        module.gab_amplitude.zero_()
    table(module, 3, 3).sum().backward()
    assert module.gab_amplitude.grad == 0


@given(height=sides, width=sides, prefix=st.integers(0, 1), heads=st.integers(1, 3))
@settings(max_examples=30)
def test_table_is_looked_up_by_offset(height, width, prefix, heads):
    grid = TokenGrid(height, width, prefix)
    module = OffsetTable(GridPair(grid, grid), heads).double()

    def value(h, y_q, x_q, y_k, x_k):
        return module.rel_pos_table[h, y_q - y_k + height - 1, x_q - x_k + width - 1]

    assert_same_with_gradients(module, grid, lambda: pairwise(grid, heads, value))


def test_table_of_another_grid_keeps_its_middle():
    grid = TokenGrid(4, 6)
    module = OffsetTable(GridPair(grid, grid), 2)
    resized = table(module, 8, 9)
    assert resized.shape == (2, 15, 17)
    assert_close(resized[:, 7, 8], module.rel_pos_table[:, 3, 5])


@given(height=sides, width=sides, heads=st.integers(1, 3))
@settings(max_examples=30)
def test_mlp_is_its_equation(height, width, heads):
    module = randomize(OffsetMlp(heads, 5, 0.125)).double().eval()
    grid = TokenGrid(height, width, 1)

    def spaced(t):
        return math.copysign(math.log(1 + abs(t)), t)

    def value(h, y_q, x_q, y_k, x_k):
        offset = torch.tensor([spaced(y_q - y_k), spaced(x_q - x_k)], dtype=torch.float64)
        hidden = torch.clamp(module.fc1.weight @ offset + module.fc1.bias, min=0)
        return module.fc2.weight[h] @ hidden + module.fc2.bias[h]

    assert_same_with_gradients(module, grid, lambda: pairwise(grid, heads, value))


def test_mlp_drops_in_training_only():
    module = OffsetMlp(2, 64, 0.5)
    assert not torch.equal(table(module, 3, 3), table(module, 3, 3))
    module.eval()
    assert torch.equal(table(module, 3, 3), table(module, 3, 3))


@pytest.mark.parametrize('host', [vit, swin])
def test_biases_reach_the_scores(host):
    plugs = [dict(type='RelPosMlp'), dict(type='GaussianAttentionBias'), dict(type='RelPosBias')]
    model = randomize(host(plugs=plugs)).double().eval()
    plain = host().double().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    _, found = model.forward_intermediates(images(32, 40), ('scores', 'logits', 'bias'), layers=[0])
    _, stock = plain.forward_intermediates(images(32, 40), ('scores', 'logits', 'bias'), layers=[0])
    block = model.plugged_blocks()[0]
    site = Site(GlobalLayout(4, 5, 1) if host is vit else GlobalLayout(4, 4))
    extra = sum(module(site).expand() for module in block.plugs.at('bias'))
    own = stock['bias'][0] if 'bias' in stock else 0
    assert_close(found['bias'][0], own + extra)
    assert_close(found['logits'][0], stock['scores'][0] + own + extra)


def load_shared(separate, shared):
    """Every block's Gaussian set to the shared one."""
    state = shared.state_dict()
    owned = {key.split('.')[-1]: state.pop(key) for key in list(state) if 'gab.shared' in key}
    assert set(owned) == {'gab_amplitude', 'gab_sigma'}
    for key in separate.state_dict():
        if 'gab.bias' in key:
            state[key] = owned[key.split('.')[-1]]
    separate.load_state_dict(state)


def gab_gradients(model, x):
    """Outputs, and the gradients of every A and of every sigma, summed over the blocks that have one."""
    outs = model(x)
    sum((out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).sum() for out in outs).backward()
    grads = {'gab_amplitude': [], 'gab_sigma': []}
    for name, parameter in model.named_parameters():
        if 'gab' in name:
            grads[name.split('.')[-1]].append(parameter.grad)
    return outs, {name: sum(found) for name, found in grads.items()}, len(grads['gab_sigma'])


@pytest.mark.parametrize(
    ('host', 'settings'),
    [
        ('vit', dict()),
        ('vit', dict(per_head=True, layers=[0, 2, 3])),
        ('vit-no-cls', dict(per_head=True, coord='relative')),
        ('vit-windows', dict()),
        ('swin', dict()),
        ('swin', dict(per_head=True, coord='relative', layers=[2, 3])),
    ],
    ids=str,
)
def test_shared_gaussian_is_one_for_all_blocks(host, settings):
    """The same value as equal ones in all blocks, and the sum of their gradients."""
    plugs = [dict(type='GaussianAttentionBias', **settings)]
    shared = randomize(HOSTS[host](plugs=[dict(plugs[0], share_layers=True)])).double().eval()
    separate = HOSTS[host](plugs=plugs).double().eval()
    load_shared(separate, shared)
    outs, grads, owners = gab_gradients(shared, images(37, 51))
    expected, sums, blocks = gab_gradients(separate, images(37, 51))
    assert owners == 1 < blocks == len(settings.get('layers', range(4)))
    assert_close(outs, expected, rtol=1e-10, atol=1e-10)
    assert_close(grads, sums, rtol=1e-8, atol=1e-10)


def test_shared_gaussian_is_owned_by_the_network():
    """Frozen blocks leave it alone, and a copy has its own."""
    model = vit(plugs=[dict(type='GaussianAttentionBias', share_layers=True)], frozen_stages=1)
    names = [name for name in model.state_dict() if 'gab' in name]
    assert names == ['plugs.gab.shared.gab_amplitude', 'plugs.gab.shared.gab_sigma']
    assert all(p.requires_grad for p in model.plugs.parameters())
    twin = copy.deepcopy(model)
    for one in (model, twin):
        assert all(block.plugs['gab']['bias'].owned[0] is one.plugs['gab']['shared'] for block in one.layers)


@pytest.mark.parametrize(
    ('host', 'settings', 'message'),
    [
        (swin, dict(per_head=True), r'share_layers=True with per_head=True .* \[2, 4\] heads; set per_head=False, or'),
        (
            HOSTS['vit-windows'],
            dict(coord='relative'),
            r"share_layers=True with coord='relative' .* \[\(3, 3\), \(4, 5\)\]; set coord='token', or layers",
        ),
        (vit, dict(share_layers='all'), r"share_layers='all': expected True or False"),
    ],
    ids=['heads', 'grids', 'no bool'],
)
def test_blocks_that_cannot_share_a_gaussian(host, settings, message):
    with pytest.raises(ValueError, match=message):
        host(plugs=[dict(type='GaussianAttentionBias', **{'share_layers': True, **settings})])


@pytest.mark.parametrize('host', HOSTS)
def test_attention_stays_fused(host):
    model = HOSTS[host](plugs=[dict(type='GaussianAttentionBias')])
    assert all(block.plugs.fuses(Site(GlobalLayout(2, 2))) for block in model.plugged_blocks())


@pytest.mark.parametrize(
    ('plug', 'message'),
    [
        (dict(type='GaussianAttentionBias', amplitude=0), 'amplitude=0: its gradient'),
        (dict(type='GaussianAttentionBias', sigma=-1), r'sigma=-1: expected a number at least 0.01'),
        (dict(type='GaussianAttentionBias', sigma=float('nan')), 'sigma=nan: expected a number'),
        (dict(type='GaussianAttentionBias', per_head=1), 'per_head=1: expected True or False'),
        (dict(type='GaussianAttentionBias', coord='pixel'), r"coord='pixel': expected one of .*token.*relative"),
        (dict(type='RelPosMlp', hidden_dims=0), 'hidden_dims=0: expected an integer of at least 1'),
        (dict(type='RelPosMlp', drop_rate=1.0), r'drop_rate=1.0: expected a number at least 0.0 and below 1.0'),
        (dict(type='RelPosBias', hidden_dims=1), r"RelPosBias has no argument \['hidden_dims'\]"),
    ],
    ids=str,
)
def test_bad_arguments(plug, message):
    with pytest.raises(ValueError, match=message):
        vit(plugs=[plug])


@pytest.mark.parametrize(
    ('model', 'extra'),
    [
        (lambda **kw: VisionTransformer('deit-small', **kw), 24),
        (lambda **kw: SwinTransformer('tiny', **kw), 24),
        (lambda **kw: SwinTransformer('small', **kw), 48),
    ],
)
def test_parameters_of_gab(model, extra):
    sizes = [sum(p.numel() for p in model(plugs=p).parameters()) for p in ([], [dict(type='GaussianAttentionBias')])]
    assert sizes[1] - sizes[0] == extra
