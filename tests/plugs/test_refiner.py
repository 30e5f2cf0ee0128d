"""Refiner against its equations, entry by entry."""

import copy

import pytest
import test_compile as compiling
import test_contract as contract
import torch
import torch.nn.functional as F
from cases import HOSTS, PLUGS, VIT_ARCH, CarryProbe, images, randomize, swin, vit
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, attend, tuning
from vitplug.attention.layouts import MASKED
from vitplug.plugs import LayerPlugs, Refiner, UniformHead
from vitplug.plugs.refiner import linear as linear_form
from vitplug.plugs.refiner.bottleneck import BottleneckRefine
from vitplug.plugs.refiner.linear import LinearRefine
from vitplug.plugs.refiner.tiles import attend_to_convolved

MBCONV = dict(mode='mbconv', init='default')
OFFICIAL = dict(scheme='official', share=1, **MBCONV)

# --- the oracle: every entry of every map written out; maps are (B, W, H, N, N) ---


def mix(weights, maps):
    """New maps as weighted sums of the given ones; weights (new, old)."""
    new = [sum(weights[n, o] * maps[:, :, o] for o in range(maps.shape[2])) for n in range(len(weights))]
    return torch.stack(new, dim=2)


def convolve_line(kernel, maps, axis):
    """Entry by entry along one axis, zeros outside; kernel (maps, k)."""
    tokens, half = maps.shape[-1], kernel.shape[1] // 2
    lines = maps.unbind(axis)
    out = []
    for i in range(tokens):
        terms = [lines[0] * 0]
        for a in range(kernel.shape[1]):
            if 0 <= i + a - half < tokens:
                terms.append(kernel[:, a, None] * lines[i + a - half])
        out.append(sum(terms))
    return torch.stack(out, dim=axis)


def convolve_plane(kernel, maps):
    """Over queries and keys in the order of tokens; kernel (maps, k, k)."""
    tokens, side = maps.shape[-1], kernel.shape[-1]
    rows = []
    for i in range(tokens):
        row = []
        for j in range(tokens):
            entry = maps[..., 0, 0] * 0
            for a in range(side):
                for b in range(side):
                    y, x = i + a - side // 2, j + b - side // 2
                    if 0 <= y < tokens and 0 <= x < tokens:
                        entry = entry + kernel[:, a, b] * maps[..., y, x]
            row.append(entry)
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2)


def convolve_image(kernel, maps, grid):
    """Over the image of keys of every query, prefix keys as they are; kernel (maps, k, k)."""
    side = kernel.shape[-1]
    columns = [maps[..., j] for j in range(grid.num_prefix)]
    for y in range(grid.height):
        for x in range(grid.width):
            entry = maps[..., 0] * 0
            for a in range(side):
                for b in range(side):
                    yy, xx = y + a - side // 2, x + b - side // 2
                    if 0 <= yy < grid.height and 0 <= xx < grid.width:
                        key = grid.num_prefix + yy * grid.width + xx
                        entry = entry + kernel[:, a, b, None] * maps[..., key]
            columns.append(entry)
    return torch.stack(columns, dim=-1)


def dla_oracle(module, maps, grid, rowcol_mode='sum'):
    if module.constraint == 'none':
        return convolve_plane(module.local[:, 0], maps)
    if module.constraint == 'spatial':
        return convolve_image(module.local[:, 0], maps, grid)
    keys, queries = module.along_keys[:, 0, 0], module.along_queries[:, 0, :, 0]
    convolved = convolve_line(keys, maps, -1)
    if rowcol_mode == 'sequential':
        return convolve_line(queries, convolved, -2)
    return convolved + convolve_line(queries, maps, -2)


def hide(maps, mask):
    if mask is None:
        return maps
    out = maps.clone()
    for w, i, j in mask.nonzero().tolist():
        out[:, w, :, i, j] = 0
    return out


def refine_oracle(module, probs, grid, mask=None, rowcol_mode='sum'):
    """W_E, C and W_R one after the other."""
    maps = probs if module.expand is None else mix(module.expand[:, :, 0, 0], probs)
    maps = dla_oracle(module, maps, grid, rowcol_mode)
    maps = maps if module.reduce is None else mix(module.reduce[:, :, 0, 0], maps)
    return hide(maps, mask)


def weigh_oracle(maps, v, copies, split):
    """Map h' with the values of head h' // r, or with a slice of them."""
    outs = []
    for h in range(v.shape[2]):
        slices = v[:, :, h].chunk(copies, dim=-1) if split else [v[:, :, h]] * copies
        served = [maps[:, :, h * copies + c] @ values for c, values in enumerate(slices)]
        outs += [torch.cat(served, dim=-1)] if split else served
    return torch.stack(outs, dim=2)


def batch_norm_oracle(norm, x, training):
    """Every channel by the mean and variance of its entries, or by those collected in training."""
    out = []
    for c in range(x.shape[2]):
        entries = x[:, :, c]
        mean, var = norm.running_mean[c], norm.running_var[c]
        if training:
            mean = entries.sum() / entries.numel()
            var = ((entries - mean) ** 2).sum() / entries.numel()
        out.append((entries - mean) / (var + norm.eps).sqrt() * norm.weight[c] + norm.bias[c])
    return torch.stack(out, dim=2)


def bottleneck_oracle(module, probs, mask, training):
    def norm(layer, x):
        return batch_norm_oracle(layer, x, training)

    x = norm(module.expand_bn, mix(module.expand[:, :, 0, 0], probs)).clamp(0, 6)
    x = norm(module.local_bn, convolve_plane(module.local[:, 0], x)).clamp(0, 6)
    x = norm(module.reduce_bn, mix(module.reduce[:, :, 0, 0], x)) + probs
    return hide(norm(module.adapt_bn, x), mask)


# --- drawing cases ---


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probabilities(*shape, seed=0):
    return noise(*shape, seed=seed).softmax(-1).requires_grad_()


def mask_of(windows, tokens, seed):
    return (noise(windows, tokens, tokens, seed=seed) > 0.5) * MASKED


def site_of(layout, mask=None):
    """The site of windows with masks ``(W, N, N)``."""
    return Site(layout, mask=None if mask is None else mask[None])


def with_gradients(out, inputs):
    """The output and the gradients of a scalar that weighs every output element differently."""
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad((out * weights).sum(), inputs)


def linear(heads, **arguments):
    return randomize(LinearRefine(heads, Refiner(**arguments))).double()


constraints = st.sampled_from([('none', 'sum'), ('spatial', 'sum'), ('rowcol', 'sum'), ('rowcol', 'sequential')])
layouts = st.builds(GlobalLayout, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
seeds = st.integers(0, 99)
kernels = st.sampled_from([1, 3, 5])


@st.composite
def variants(draw):
    constraint, rowcol_mode = draw(constraints)
    expansion = draw(st.integers(0, 3))
    reduction = expansion == 0 or draw(st.booleans())
    return dict(
        expansion=expansion,
        kernel_size=draw(kernels),
        reduction=reduction,
        constraint=constraint,
        rowcol_mode=rowcol_mode,
        value_split=not reduction and draw(st.booleans()),
    )


slow = settings(max_examples=60, deadline=None)


# --- linear ---


@slow
@given(variants(), layouts, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.booleans(), seeds)
def test_linear_is_the_equation(variant, layout, heads, batch, windows, masked, seed):
    module, tokens = linear(heads, **variant), layout.grid.num_tokens
    probs = probabilities(batch, windows, heads, tokens, tokens, seed=seed)
    mask = mask_of(windows, tokens, seed) if masked else None
    got, carry = module(probs, site_of(layout, mask), {})
    expected = refine_oracle(module, probs, layout.grid, mask, variant['rowcol_mode'])
    assert carry == {}
    leaves = [probs, *module.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves))


@slow
@given(variants(), layouts, st.integers(1, 3), st.integers(0, 2), st.booleans(), seeds)
def test_attention_with_refined_maps_is_the_equation(variant, layout, heads, uniform_heads, masked, seed):
    """Values are matched as documented, and further value heads still attend uniformly."""
    module, tokens, copies = (
        linear(heads, **variant),
        layout.grid.num_tokens,
        1 if variant['reduction'] else variant['expansion'],
    )
    width = 2 * max(copies, 1)
    q, k = (noise(2, 2, heads, tokens, 3, seed=seed + i).requires_grad_() for i in range(2))
    v = noise(2, 2, heads + uniform_heads, tokens, width, seed=seed + 2).requires_grad_()
    mask = mask_of(2, tokens, seed) * (1 - torch.eye(tokens)) if masked else None
    plugs = LayerPlugs({'refiner': torch.nn.ModuleDict({'map': module})})
    got, _ = attend(q, k, v, scale=0.7, site=site_of(layout, mask), plugs=plugs, carry={})

    logits = 0.7 * q @ k.mT
    probs = (logits if mask is None else logits + mask[:, None]).softmax(-1)
    maps = refine_oracle(module, probs, layout.grid, mask, variant['rowcol_mode'])
    expected = weigh_oracle(maps, v[:, :, :heads], copies, variant['value_split'])
    allowed = torch.ones(2, tokens, tokens) if mask is None else mask == 0
    uniform = (allowed / allowed.sum(-1, keepdim=True)).double()[:, None] @ v[:, :, heads:]
    expected = torch.cat((expected, uniform), dim=2)
    leaves = [q, k, v, *module.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves))


# --- exact facts about the linear form ---


@settings(deadline=None)
@given(variants(), st.integers(1, 3), seeds)
def test_folding_is_exact(variant, heads, seed):
    """W_R C W_E is one dense convolution, for every r."""
    assume(variant['expansion'] and variant['constraint'] != 'spatial')
    module = linear(heads, **variant)
    maps = noise(2, heads, 7, 7, seed=seed)
    local, padding = module.dla(), variant['kernel_size'] // 2
    chain = F.conv2d(F.conv2d(maps, module.expand), local, padding=padding, groups=len(local))
    chain = chain if module.reduce is None else F.conv2d(chain, module.reduce)
    assert_close(F.conv2d(maps, module.fold(local), padding=padding), chain)


def shifted(x, steps):
    """Row i of the result is row i + steps of x, zeros from outside."""
    out = torch.zeros_like(x)
    for i in range(len(x)):
        if 0 <= i + steps < len(x):
            out[i] = x[i + steps]
    return out


@settings(deadline=None)
@given(st.integers(1, 9), kernels, seeds)
def test_dla_is_attention_with_convolved_values(tokens, side, seed):
    """Sum over kernel rows a of: A @ (V convolved by the reversed row a), its rows shifted by a."""
    module = linear(1, expansion=0, kernel_size=side)
    probs, v = probabilities(1, 1, 1, tokens, tokens, seed=seed), noise(tokens, 2, seed=seed)
    expected = module(probs, site_of(GlobalLayout(1, tokens)), {})[0][0, 0, 0] @ v
    kernel, half = module.local[0, 0], side // 2
    got = torch.zeros_like(v)
    for a in range(side):
        values = sum(kernel[a, b] * shifted(v, half - b) for b in range(side))
        got = got + shifted(probs[0, 0, 0] @ values, a - half)
    assert_close(got, expected)


@settings(deadline=None)
@given(layouts, kernels, seeds)
def test_spatial_dla_is_attention_with_filtered_values(layout, side, seed):
    """V filtered on the image grid by the kernel turned by 180 degrees."""
    module, tokens = linear(1, expansion=0, kernel_size=side, constraint='spatial'), layout.grid.num_tokens
    probs, v = probabilities(1, 1, 1, tokens, tokens, seed=seed), noise(tokens, 2, seed=seed)
    expected = module(probs, site_of(layout), {})[0][0, 0, 0] @ v
    image = v[layout.num_prefix :].T.reshape(2, 1, layout.height, layout.width)
    filtered = F.conv2d(image, module.local.flip(2, 3), padding=side // 2).reshape(2, -1).T
    assert_close(probs[0, 0, 0] @ torch.cat((v[: layout.num_prefix], filtered)), expected)


@settings(deadline=None)
@given(st.integers(1, 9), kernels, seeds)
def test_rowcol_is_values_and_outputs_convolved(tokens, side, seed):
    module = linear(1, expansion=0, kernel_size=side, constraint='rowcol')
    probs, v = probabilities(1, 1, 1, tokens, tokens, seed=seed), noise(tokens, 2, seed=seed)
    a = probs[0, 0, 0]
    expected = module(probs, site_of(GlobalLayout(1, tokens)), {})[0][0, 0, 0] @ v
    keys, queries, half = module.along_keys.flatten(), module.along_queries.flatten(), side // 2
    got = a @ sum(keys[b] * shifted(v, half - b) for b in range(side))
    assert_close(got + sum(queries[i] * shifted(a @ v, i - half) for i in range(side)), expected)


@pytest.mark.parametrize('arguments', [{}, dict(expansion=0), dict(constraint='rowcol')], ids=str)
@pytest.mark.parametrize('batch', [1, 2])
def test_inference_by_images_is_that_by_batches(arguments, batch, monkeypatch):
    model, x = randomize(vit(plugs=[dict(type='Refiner', **arguments)])).double().eval(), images(40, 56, batch)
    ran = []
    monkeypatch.setattr(linear_form, 'attend_to_convolved', lambda *args: ran.append(1) or attend_to_convolved(*args))
    with torch.no_grad():
        expected = model(x)
        monkeypatch.setattr(tuning, 'MAPS_BY_IMAGE_FROM', 1)
        assert not ran
        assert_close(model(x), expected)
    assert bool(ran) == (batch > 1)
    ran.clear()
    model(x)
    assert not ran


@settings(deadline=None)
@given(st.integers(1, 9), kernels, st.integers(1, 4), seeds)
def test_query_rows_may_be_cut_with_a_halo(tokens, side, chunk, seed):
    kernel, maps, half = noise(2, side, side, seed=seed), noise(1, 1, 2, tokens, tokens, seed=seed), side // 2
    whole = convolve_plane(kernel, maps)
    padded = F.pad(maps[0], (0, 0, half, half))
    parts = [
        F.conv2d(padded[:, :, start : start + chunk + 2 * half], kernel[:, None], padding=(0, half), groups=2)
        for start in range(0, tokens, chunk)
    ]
    assert_close(torch.cat(parts, dim=2), whole[0])


# --- bottleneck ---


@slow
@given(st.integers(1, 3), kernels, st.integers(1, 3), st.integers(1, 5), st.booleans(), st.booleans(), seeds)
def test_bottleneck_is_the_chain(expansion, side, heads, tokens, masked, training, seed):
    # The only probability of one token is 1: a variance of 0, by which nothing can be divided precisely.
    tokens += training
    plug = Refiner(expansion=expansion, kernel_size=side, **MBCONV)
    module = randomize(BottleneckRefine(heads, tokens, plug)).double().train(training)
    for i, norm in enumerate(norms(module)):
        norm.running_mean += 0.1 * noise(norm.num_features, seed=seed + i)
        norm.running_var *= 0.5 + noise(norm.num_features, seed=seed + i).abs()
        norm.weight.data *= 6  # beyond what ReLU6 lets through
    probs = probabilities(2, 2, heads, tokens, tokens, seed=seed)
    mask = mask_of(2, tokens, seed) if masked else None
    before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms(module)]
    expected = bottleneck_oracle(module, probs, mask, training)
    got, _ = module(probs, site_of(GlobalLayout(1, tokens), mask), {})
    leaves = [probs, *module.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves), rtol=1e-6, atol=1e-8)
    after = [(norm.running_mean, norm.running_var) for norm in norms(module)]
    assert all(
        torch.equal(a, b) != training for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)
    )


def norms(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]


def test_bottleneck_collects_the_statistics_of_images_windows_and_token_pairs():
    module = randomize(BottleneckRefine(2, 5, Refiner(expansion=2, **MBCONV))).double().train()
    probs = probabilities(2, 3, 2, 5, 5)
    expanded = mix(module.expand[:, :, 0, 0], probs)
    module(probs, site_of(GlobalLayout(1, 5)), {})
    assert_close(module.expand_bn.running_mean, 0.1 * expanded.mean((0, 1, 3, 4)))
    assert_close(module.expand_bn.running_var, 0.9 + 0.1 * expanded.var((0, 1, 3, 4)))


@pytest.mark.parametrize(
    ('rescale', 'training', 'factor'),
    [(None, True, 1), (None, False, 4), (True, True, 2), (True, False, 2), (False, True, 1), (False, False, 1)],
)
def test_rescale_by_tokens(rescale, training, factor):
    """None compares with the last training's 4 tokens, True with the configured 8."""
    module = randomize(BottleneckRefine(2, 8, Refiner(rescale_by_tokens=rescale, **MBCONV))).double().train()
    module(probabilities(2, 1, 2, 4, 4), site_of(GlobalLayout(1, 4)), {})
    module.train(training)
    unscaled = copy.deepcopy(module)
    unscaled.rescale = False
    probs = probabilities(2, 1, 2, 16, 16)
    site = site_of(GlobalLayout(4, 4))
    got, _ = module(probs, site, {})
    assert_close(got, unscaled(factor * probs, site, {})[0])
    assert torch.equal(got, unscaled(probs, site, {})[0]) == (factor == 1)


def test_evaluation_at_the_configured_size_is_not_rescaled():
    model = randomize(vit(plugs=[dict(type='Refiner', **MBCONV)])).eval()
    x = images(32, 40, dtype=torch.float32)
    expected = model(x)
    for layer in model.layers:
        layer.plugs['refiner']['map'].rescale = False
    assert_close(model(x), expected, rtol=0, atol=0)


def test_bottleneck_norms_stay_precise_under_autocast():
    module, seen = BottleneckRefine(2, 9, Refiner(**MBCONV)).train(), []
    for norm in norms(module):
        norm.register_forward_pre_hook(lambda norm, inputs: seen.append(inputs[0].dtype))
    with torch.autocast('cpu', torch.float16):
        out, _ = module(probabilities(2, 1, 2, 9, 9).float(), site_of(GlobalLayout(3, 3)), {})
    assert out.isfinite().all() and seen == [torch.float32] * 4


# --- starts ---

IDENTITIES = {
    'paper': dict(),
    'one copy': dict(expansion=1),
    'many copies': dict(expansion=4, kernel_size=5),
    'dla': dict(expansion=0),
    'spatial': dict(constraint='spatial'),
    'rowcol': dict(constraint='rowcol'),
    'rowcol in turn': dict(constraint='rowcol', rowcol_mode='sequential'),
    'repeated values': dict(reduction=False),
    'split values': dict(reduction=False, value_split=True, expansion=1),
}


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('variant', IDENTITIES)
def test_identity_start_is_the_plain_host(host, variant):
    """To rounding, from a stock checkpoint; without reduction its projection is spread over the copies."""
    plain = randomize(HOSTS[host]()).eval()
    plugged = HOSTS[host](plugs=[dict(type='Refiner', **IDENTITIES[variant])]).eval()
    plugged.load_state_dict(plain.state_dict(), strict=False)
    x = images(37, 51, dtype=torch.float32)
    for expected, got in zip(plain(x), plugged(x), strict=True):
        assert (got - expected).abs().max() < 2e-6 * expected.abs().max()


def test_identity_start_with_split_values():
    plain = randomize(vit()).eval()
    plugged = vit(plugs=[dict(type='Refiner', reduction=False, value_split=True, expansion=4)]).eval()
    plugged.load_state_dict(plain.state_dict(), strict=False)
    x = images(32, 40, dtype=torch.float32)
    assert_close(plugged(x), plain(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('reduction', [True, False])
def test_noise_sets_copies_apart_and_cancels_out(reduction):
    heads, expansion = 12, 3
    module = LinearRefine(heads, Refiner(expansion=expansion, reduction=reduction))
    extra = module.expand[:, :, 0, 0].unflatten(0, (heads, expansion)) - torch.eye(heads)[:, None]
    assert_close(extra.sum(1), torch.zeros(heads, heads), atol=1e-6, rtol=0)
    for first in range(expansion):
        for second in range(first):
            assert (extra[:, first] - extra[:, second]).abs().mean() > 0.01
    # One of r numbers with zero mean has (r - 1) / r of the variance.
    assert extra.std().item() == pytest.approx(0.02 * (2 / 3) ** 0.5, rel=0.15)


def test_identity_is_folded_precisely_under_autocast():
    """In half precision the noise would not cancel out: each head would get some of the others."""
    module = LinearRefine(3, Refiner(kernel_size=1))
    with torch.autocast('cpu', torch.bfloat16):
        assert_close(module.fold(module.dla()).flatten(1), torch.eye(3), atol=1e-6, rtol=0)


def test_copies_get_different_gradients():
    module = LinearRefine(2, Refiner()).double()
    out, _ = module(probabilities(1, 1, 2, 4, 4), site_of(GlobalLayout(2, 2)), {})
    _, (grad,) = with_gradients(out, [module.local])
    assert all(not torch.allclose(grad[0], grad[c]) for c in (1, 2))


def test_default_start_is_that_of_convolutions():
    torch.manual_seed(0)
    module = LinearRefine(4, Refiner(init='default'))
    torch.manual_seed(0)
    convs = [torch.nn.Conv2d(4, 12, 1, bias=False), torch.nn.Conv2d(12, 12, 3, groups=12, bias=False)]
    convs.append(torch.nn.Conv2d(12, 4, 1, bias=False))
    for got, conv in zip((module.expand, module.local, module.reduce), convs, strict=True):
        assert torch.equal(got, conv.weight)


@pytest.mark.parametrize('host', HOSTS)
def test_host_initialisation_leaves_it_alone(host):
    reset = [dict(type='Kaiming', layer=['Conv2d', 'Linear']), dict(type='Constant', val=2.0, layer=['LayerNorm'])]
    model = HOSTS[host](plugs=[dict(type='Refiner')], init_cfg=reset)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.init_weights()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed and not any('refiner' in name for name in changed)


# --- parameters ---


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (dict(), 1188),
        (dict(expansion=1), 2 * 144 + 9 * 12),
        (dict(expansion=6, kernel_size=5), 2 * 6 * 144 + 6 * 12 * 25),
        (dict(expansion=0), 9 * 12),
        (dict(constraint='spatial'), 1188),
        (dict(constraint='rowcol'), 2 * 3 * 144 + 3 * 12 * 6),
        (dict(reduction=False), 3 * 144 + 3 * 12 * 9),
    ],
)
def test_parameters(arguments, expected):
    module = LinearRefine(12, Refiner(**arguments))
    assert count(module) == expected
    assert all(p.ndim >= 2 for p in module.parameters())


def test_parameters_of_the_bottleneck():
    module = BottleneckRefine(12, 197, Refiner(**MBCONV))
    assert count(module) == 1188 + 2 * (2 * 36 + 2 * 12)
    assert {p.ndim for p in module.parameters()} == {1, 4}


def test_parameters_without_reduction():
    dims, heads = VIT_ARCH['embed_dims'], VIT_ARCH['num_heads']
    plain = count(vit())
    wide = count(vit(plugs=[dict(type='Refiner', reduction=False)]))
    own = 3 * heads**2 + 27 * heads
    assert wide - plain == 4 * (own + 2 * dims * dims)
    narrow = count(vit(plugs=[dict(type='Refiner', reduction=False, value_split=True, expansion=2)]))
    assert narrow - plain == 4 * (2 * heads**2 + 18 * heads)


# --- sharing ---

SHARINGS = {
    'refiner-share': [dict(type='Refiner', share=1)],
    'refiner-share-3': [dict(type='Refiner', share=3, constraint='spatial')],
    'refiner-share-repeat': [dict(type='Refiner', share=1, reduction=False, expansion=2)],
    'refiner-share-split': [
        dict(type='Refiner', share=2, layers=[1, 2, 3], reduction=False, value_split=True, expansion=4)
    ],
    'refiner-share-mbconv': [dict(type='Refiner', share=1, **MBCONV)],
    'unrefined-share': [dict(type='Refiner', mode='none', share=2, layers=[1, 2, 3])],
    'refiner-official': [dict(type='Refiner', **OFFICIAL)],
    'refiner-share-uniform': [dict(type='UniformHead'), dict(type='Refiner', share=1), dict(type='ContextBroadcast')],
}
VIT_HOSTS = ['vit', 'vit-no-cls']
CLAUSES = {
    'twins': lambda h, p: contract.test_fused_and_plain_are_twins(h, p, (37, 51)),
    'autocast float16': lambda h, p: contract.test_autocast_to_rounding(h, p, torch.float16),
    'autocast bfloat16': lambda h, p: contract.test_autocast_to_rounding(h, p, torch.bfloat16),
    'checkpointing': contract.test_checkpointing_changes_nothing,
    'gradients': contract.test_every_parameter_gets_a_gradient,
    'compile': compiling.test_compiles_to_one_graph_once,
    'frozen': contract.test_frozen_stages,
    'depths': contract.test_every_parameter_has_a_depth,
    'averaging': contract.test_weight_averaging,
    'in flight': contract.test_two_forwards_in_flight,
    'deepcopy': contract.test_deepcopy_is_independent,
    'pickle': contract.test_configs_may_be_pickled,
    'state dict': contract.test_state_dict_round_trip,
    'stock checkpoint': contract.test_stock_checkpoint_lacks_only_plug_keys,
    'input size': contract.test_input_size_may_change,
    'inference mode': contract.test_training_after_inference_mode,
    'plain maps': contract.test_plain_maps_lie_on_the_way_to_the_output,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize('clause', CLAUSES)
@pytest.mark.parametrize('host', VIT_HOSTS)
@pytest.mark.parametrize('plugs', SHARINGS)
def test_sharing_keeps_the_contract(plugs, host, clause, monkeypatch):
    for table in (PLUGS, contract.PLUGS):  # the contract has plugs of single hosts, too
        monkeypatch.setitem(table, plugs, SHARINGS[plugs])
    CLAUSES[clause](host, plugs)


def block_by_hand(block, x, grid, maps, copies=1, split=False, refined=True):
    """A pre-norm ViT block that computes a map, refined if ``refined``, or takes the given one."""
    heads, dims = VIT_ARCH['num_heads'], x.shape[-1]
    *qk, v = block.attn.qkv(block.ln1(x)).split(dims, dim=-1)
    q, k, v = ((t.unflatten(-1, (heads, -1)).transpose(1, 2)[:, None]) for t in (*qk, v)) if qk else (None, None, v)
    if maps is None:
        maps = ((q @ k.mT) * (dims // heads) ** -0.5).softmax(-1)
        module = block.plugs['refiner']['map']
        maps = refine_oracle(module, maps, grid) if refined else maps
    else:
        v = v.unflatten(-1, (heads, -1)).transpose(1, 2)[:, None]
    out = weigh_oracle(maps, v, copies, split)[:, 0].transpose(1, 2).flatten(2)
    x = x + block.attn.proj(out)
    (fc1, act, _), fc2, _ = block.ffn.layers
    return x + fc2(act(fc1(block.ln2(x)))), maps


@pytest.mark.parametrize('values', [dict(), dict(reduction=False), dict(reduction=False, value_split=True)], ids=str)
@pytest.mark.parametrize(('share', 'owners'), [(0, [0, 1, 2, 3]), (1, [0, 2]), (2, [0, 3]), (3, [0])])
def test_blocks_share_a_map(share, owners, values):
    model = randomize(vit(plugs=[dict(type='Refiner', share=share, expansion=2, kernel_size=5, **values)])).double()
    site, x = site_of(GlobalLayout(2, 3, 1)), noise(2, 7, VIT_ARCH['embed_dims']).requires_grad_()
    got, carry = x, {}
    expected, maps = x, None
    for i, block in enumerate(model.layers):
        got, carry = block(got, site, carry)
        maps = None if i in owners else maps
        copies = 2 if values else 1
        expected, maps = block_by_hand(
            block, expected, site.layout.grid, maps, copies, values.get('value_split', False)
        )
    leaves = [x, *model.layers.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves))


@pytest.mark.parametrize(('share', 'owners'), [(1, [0, 2]), (2, [0, 3]), (3, [0])])
def test_blocks_share_a_map_of_plain_attention(share, owners):
    model = randomize(vit(plugs=[dict(type='Refiner', mode='none', share=share)])).double()
    site, x = site_of(GlobalLayout(2, 3, 1)), noise(2, 7, VIT_ARCH['embed_dims']).requires_grad_()
    got, carry = x, {}
    expected, maps = x, None
    for i, block in enumerate(model.layers):
        got, carry = block(got, site, carry)
        expected, maps = block_by_hand(block, expected, site.layout.grid, None if i in owners else maps, refined=False)
    leaves = [x, *model.layers.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves))
    assert count(model.layers) == count(vit().layers) - (4 - len(owners)) * 2 * x.shape[-1] * (x.shape[-1] + 1)
    assert not any('refiner' in name for name in model.state_dict())


def official_oracle(blocks, x, training):
    """The official code's blocks: norms of halved tokens, branches divided by a half, maps refined where reused."""
    heads, dims = VIT_ARCH['num_heads'], x.shape[-1]
    scale, handed = (dims // heads) ** -0.5, None

    def per_head(t):
        return t.unflatten(-1, (heads, -1)).transpose(1, 2)[:, None]

    def norm(layer, t):
        return F.layer_norm(t / 2, (dims,), layer.weight, layer.bias, eps=1e-6)

    for i, block in enumerate(blocks):
        *qk, v = (per_head(t) for t in block.attn.qkv(norm(block.ln1, x)).split(dims, dim=-1))
        assert len(qk) == (0 if i % 2 else 2)
        if i % 2 == 0:
            own = ((scale**0.5 * qk[0]) @ (scale**0.5 * qk[1]).mT).softmax(-1)
            maps = handed = own if handed is None else own + scale * handed
        else:
            maps = scale * bottleneck_oracle(block.plugs['refiner']['map'], handed, None, training)
        x = x + block.attn.proj((maps @ v)[:, 0].transpose(1, 2).flatten(2)) / 0.5
        (fc1, act, _), fc2, _ = block.ffn.layers
        x = x + block.plugs['refiner']['mlp_end'].scale * fc2(act(fc1(norm(block.ln2, x)))) / 0.5
    return x


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(('num_layers', 'expansion', 'side'), [(4, 3, 3), (6, 2, 5)])
def test_official_scheme_is_the_description(num_layers, expansion, side, training):
    norm_cfg = dict(type='LN', eps=4e-6)
    model = randomize(
        vit(
            arch=dict(VIT_ARCH, num_layers=num_layers),
            img_size=(16, 24),
            layer_cfgs=dict(norm_cfg=norm_cfg),
            plugs=[plugged(expansion=expansion, kernel_size=side, **OFFICIAL)],
        )
    )
    model = model.double().train(training)
    for i, norm in enumerate(norms(model.layers)):
        norm.running_mean += 0.1 * noise(norm.num_features, seed=i)
        norm.running_var *= 0.5 + noise(norm.num_features, seed=i).abs()
    # Small tokens, whose variance the epsilon changes.
    site, x = site_of(GlobalLayout(2, 3, 1)), (0.01 * noise(2, 7, VIT_ARCH['embed_dims'])).requires_grad_()
    expected = official_oracle(model.layers, x, training)
    got, carry = x, {}
    for block in model.layers:
        got, carry = block(got, site, carry)
    leaves = [x, *model.layers.parameters()]
    assert_close(with_gradients(got, leaves), with_gradients(expected, leaves), rtol=1e-6, atol=1e-7)


def test_official_scheme_starts_with_faint_mlps():
    model = vit(plugs=[plugged(**OFFICIAL)])
    for layer in model.layers:
        assert torch.equal(layer.plugs['refiner']['mlp_end'].scale, torch.full((VIT_ARCH['embed_dims'],), 1e-5))


def test_official_scheme_refines_in_every_second_block():
    """Not in those that compute the map, as the paper's scheme; and every block has a scale per channel more."""
    paper, official = (vit(plugs=[plugged(share=1, **MBCONV | more)]) for more in ({}, dict(scheme='official')))
    refiner = count(paper.layers[0].plugs)
    assert [count(layer.plugs) for layer in paper.layers] == [refiner, 0, refiner, 0]
    dims = VIT_ARCH['embed_dims']
    assert [count(layer.plugs) for layer in official.layers] == [dims, dims + refiner, dims, dims + refiner]


def test_official_pairs_hand_on_what_dropout_left():
    torch.manual_seed(0)
    model = vit(plugs=[plugged(**OFFICIAL)], layer_cfgs=dict(attn_drop_rate=0.5)).train()
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), ('probs', 'maps'))
    first, second = found['maps'][0], found['maps'][2] - 8**-0.5 * found['maps'][0]
    for maps, probs in ((first, found['probs'][0]), (second, found['probs'][2])):
        dropped = maps.abs() < 1e-7
        assert 0.4 < dropped.float().mean() < 0.6
        assert_close(maps, torch.where(dropped, 0, 2 * probs), rtol=1e-4, atol=1e-6)


def test_sharing_blocks_have_neither_q_nor_k_nor_refiner():
    dims, heads = VIT_ARCH['embed_dims'], VIT_ARCH['num_heads']
    plain, shared = vit(), vit(plugs=[dict(type='Refiner', share=1, layers=[1, 2, 3])])
    own = 2 * 3 * heads**2 + 27 * heads
    sizes = [count(b) - count(a) for a, b in zip(plain.layers, shared.layers, strict=True)]
    assert sizes == [0, own, -2 * dims * (dims + 1), own]


@pytest.mark.parametrize('host', VIT_HOSTS)
def test_intermediates_of_sharing_blocks(host):
    model = randomize(HOSTS[host](plugs=[dict(type='Refiner', share=1)])).eval()
    names = ('scores', 'logits', 'probs', 'maps', 'block')
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), names)
    assert {name: list(by_block) for name, by_block in found.items()} == {
        'scores': [0, 2],
        'logits': [0, 2],
        'probs': [0, 2],
        'maps': [0, 1, 2, 3],
        'block': [0, 1, 2, 3],
    }
    assert torch.equal(found['maps'][0], found['maps'][1]) and torch.equal(found['maps'][2], found['maps'][3])
    assert not torch.equal(found['maps'][0], found['maps'][2])


def test_sharing_blocks_reuse_the_same_draw_of_dropout():
    torch.manual_seed(0)
    plugs = [dict(type='Refiner', share=1, expansion=0)]
    model = vit(plugs=plugs, layer_cfgs=dict(attn_drop_rate=0.5)).train()
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), ('probs', 'maps'))
    assert torch.equal(found['maps'][0], found['maps'][1])
    dropped = found['maps'][0] == 0
    assert 0.4 < dropped.float().mean() < 0.6
    assert_close(found['maps'][0], torch.where(dropped, 0, 2 * found['probs'][0]))


# --- stock checkpoints ---


def test_a_stock_checkpoint_keeps_what_the_heads_keep():
    dims = VIT_ARCH['embed_dims']
    plain = randomize(vit())
    shared = vit(plugs=[dict(type='Refiner', share=1)])
    missing, unexpected = shared.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and all('refiner' in key for key in missing)
    for i, (stock, own) in enumerate(zip(plain.layers, shared.layers, strict=True)):
        kept = slice(2 * dims if i % 2 else 0, None)
        assert torch.equal(own.attn.qkv.weight, stock.attn.qkv.weight[kept])
        assert torch.equal(own.attn.qkv.bias, stock.attn.qkv.bias[kept])
        assert torch.equal(own.attn.proj.weight, stock.attn.proj.weight)


@pytest.mark.parametrize('mode', ['replace', 'append'])
@pytest.mark.parametrize('refiner_first', [True, False])
def test_uniform_heads_beside_a_refiner_without_reduction(mode, refiner_first):
    """The order of the plugs does not matter, and a stock checkpoint goes to the heads it belongs to."""
    dims, d = VIT_ARCH['embed_dims'], VIT_ARCH['embed_dims'] // VIT_ARCH['num_heads']
    plugs = [dict(type='UniformHead', mode=mode), dict(type='Refiner', reduction=False, expansion=2)]
    model = vit(plugs=plugs[::-1] if refiner_first else plugs)
    uniform = randomize(vit(plugs=plugs[:1]))
    maps = 2 if mode == 'replace' else 3
    assert model.layers[0].attn.proj.in_features == (2 * maps + 1) * d
    plain = randomize(vit())
    before = copy.deepcopy(model.state_dict())
    for other in (model, uniform):
        other.load_state_dict(plain.state_dict(), strict=False)
    if mode == 'replace':
        x = images(32, 40, dtype=torch.float32)
        assert_close(model.eval()(x), uniform.eval()(x), rtol=1e-5, atol=1e-5)
    else:
        rows = model.layers[0].attn.qkv.weight
        assert torch.equal(rows[: 3 * dims], plain.layers[0].attn.qkv.weight)
        assert torch.equal(rows[3 * dims :], before['layers.0.attn.qkv.weight'][3 * dims :])
        columns = model.layers[0].attn.proj.weight
        assert torch.equal(columns[:, -d:], before['layers.0.attn.proj.weight'][:, -d:])
        assert_close(columns[:, :d] + columns[:, d : 2 * d], plain.layers[0].attn.proj.weight[:, :d])


# --- what is refused ---

BAD_ARGUMENTS = {
    'expansion negative': (dict(expansion=-1), r'expansion=-1: expected an integer of at least 0'),
    'expansion no integer': (dict(expansion=1.5), r'expansion=1.5: expected an integer'),
    'expansion a bool': (dict(expansion=True), r'expansion=True: expected an integer'),
    'kernel zero': (dict(kernel_size=0), r'kernel_size=0: expected an integer of at least 1'),
    'kernel even': (dict(kernel_size=4), r'kernel_size=4: expected an odd integer'),
    'kernel a pair': (dict(kernel_size=(3, 3)), r'kernel_size=\(3, 3\): expected an integer'),
    'reduction no bool': (dict(reduction=1), r'reduction=1: expected True or False'),
    'constraint': (dict(constraint='row+col'), r"constraint='row\+col': expected one of .*'rowcol'"),
    'mode': (dict(mode='conv'), r"mode='conv': expected one of \['linear', 'mbconv', 'none'\]"),
    'share negative': (dict(share=-1), r'share=-1: expected an integer of at least 0'),
    'init': (dict(init='zeros'), r"init='zeros': expected one of \['identity', 'default'\]"),
    'rowcol mode': (dict(rowcol_mode='mean'), r"rowcol_mode='mean': expected one of"),
    'rowcol mode alone': (dict(rowcol_mode='sequential'), r"rowcol_mode='sequential' goes with constraint='rowcol'"),
    'value split no bool': (dict(value_split=None), r'value_split=None: expected True or False'),
    'value split alone': (dict(value_split=True), r'value_split=True goes with reduction=False only'),
    'nothing to reduce': (dict(expansion=0, reduction=False), r'reduction=False: expansion=0'),
    'rescale': (dict(rescale_by_tokens=2), r'rescale_by_tokens=2: expected one of \[None, True, False\]'),
    'rescale alone': (dict(rescale_by_tokens=False), r"rescale_by_tokens=False goes with mode='mbconv' only"),
    'mbconv identity': (dict(mode='mbconv'), r"mode='mbconv' has no such variant: it needs init='default'$"),
    'mbconv spatial': (dict(constraint='spatial', **MBCONV), r"it needs constraint='none'$"),
    'mbconv no reduction': (dict(reduction=False, **MBCONV), r'it needs reduction=True$'),
    'mbconv dla': (dict(expansion=0, **MBCONV), r'it needs expansion of at least 1$'),
    'none without sharing': (dict(mode='none'), r"mode='none' changes nothing with share=0: .* at least 1$"),
    'none refines': (dict(mode='none', share=1, expansion=2), r"mode='none' refines nothing: leave out expansion=2$"),
    'none official': (
        dict(mode='none', share=1, scheme='official', kernel_size=5),
        r"leave out kernel_size=5, scheme='official'$",
    ),
    'none rescales': (dict(mode='none', share=1, rescale_by_tokens=True), r'leave out rescale_by_tokens=True$'),
    'scheme': (dict(scheme='code'), r"scheme='code': expected one of \['paper', 'official'\]"),
    'official linear': (dict(scheme='official', share=1), r"scheme='official' goes with mode='mbconv' and share=1"),
    'official share': (OFFICIAL | dict(share=2), r"share=1 only, not 'mbconv' and 2$"),
    'layers': (dict(layers='lower'), r"layers='lower': expected"),
}


@pytest.mark.parametrize('case', BAD_ARGUMENTS)
def test_bad_arguments_are_named(case):
    arguments, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        vit(plugs=[dict(type='Refiner', **arguments)])


def plugged(**arguments):
    return dict(type='Refiner', **arguments)


BAD_COMBINATIONS = {
    'share on windows': (swin, [plugged(share=1)], r'share=1 is not for windowed attention: .*set share=0'),
    'plain maps on windows': (swin, [plugged(share=1, mode='none')], r'share=1 is not for windowed attention'),
    'gap in a group': (vit, [plugged(share=1, layers=[0, 2])], r'groups of 2 blocks in a row, but block 2 .* block 0'),
    'no pairs': (vit, [plugged(layers=[0, 1, 2], **OFFICIAL)], r"scheme='official' pairs blocks, and 3 are odd"),
    'gap in a pair': (vit, [plugged(layers=[0, 2], **OFFICIAL)], r'block 2 does not follow block 0'),
    'official windows': (swin, [plugged(**OFFICIAL)], r'share=1 is not for windowed attention'),
    'pairs of other heads': (
        vit,
        [dict(type='UniformHead', layers=[2, 3]), plugged(**OFFICIAL)],
        r'adds up the maps of all pairs, but those of blocks 0 and 2 are of other tokens or heads',
    ),
    'split does not divide': (vit, [plugged(reduction=False, value_split=True)], r'8 wide, into expansion=3 slices'),
    'bias without q and k': (
        vit,
        [dict(type='GaussianAttentionBias'), plugged(share=1)],
        r"\['gab'\] need q and k of block 1, which has none .* take the block out of their layers.*share=0",
    ),
    'scores without q and k': (
        vit,
        [plugged(share=2), dict(type='ResidualAttention', layers=[0, 2])],
        r"\['residual_attention'\] need q and k of block 2",
    ),
    'two take reused maps': (
        vit,
        [plugged(share=1), dict(type=CarryProbe)],
        r"\['probe', 'refiner'\] change the maps of block 1, which has none of its own",
    ),
}


@pytest.mark.parametrize('case', BAD_COMBINATIONS)
def test_bad_combinations_are_explained(case):
    host, plugs, message = BAD_COMBINATIONS[case]
    with pytest.raises(ValueError, match=message):
        host(plugs=plugs)


def test_maps_are_not_shared_between_blocks_of_other_heads():
    layer_cfgs = [dict(num_heads=heads) for heads in (3, 4, 3, 3)]
    with pytest.raises(ValueError, match=r'block 1 cannot reuse the map of block 0: its tokens, heads or stage'):
        vit(plugs=[plugged(share=1)], layer_cfgs=layer_cfgs)


def test_plugs_that_need_q_and_k_may_take_the_other_blocks():
    model = vit(plugs=[plugged(share=1), dict(type='GaussianAttentionBias', layers=[0, 2])])
    contract.loss_of(model(images(32, 40, dtype=torch.float32))).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_uniform_head_is_shaped_before_the_refiner():
    assert UniformHead.shape_rank < Refiner.shape_rank
