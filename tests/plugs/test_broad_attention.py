"""Broad Attention against its equations, token by token, head by head and channel by channel."""

import itertools
import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from cases import HOSTS, ONE_GRID_HOSTS, CarryProbe, images, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, LayerRecord, Site, WindowLayout, fused_attention
from vitplug.backbones.attention import SelfAttention
from vitplug.plugs import BlockShape, BroadAttention, LayerPlan, Plug, PlugSet

# --- the equations ---


def bins(size, count):
    """Where the adaptive pooling of ``size`` entries to ``count`` averages, or takes the largest."""
    return [(math.floor(i * size / count), math.ceil((i + 1) * size / count)) for i in range(count)]


def average_bins(channels, count):
    return torch.stack([channels[first:end].mean() for first, end in bins(len(channels), count)])


def broad_oracle(x, qs, ks, vs, heads, scale, gamma, pool_layout, valid=None):
    """``x + gamma * O`` of tokens ``(B, N, C_l)``, every head having its share of each block's channels."""
    features = torch.zeros_like(x)

    def cut(t, b, h):
        width = t.shape[-1] // heads
        return t[b, :, h * width : (h + 1) * width]

    for b, i in itertools.product(range(x.shape[0]), range(x.shape[1])):
        of_heads = []  # [head][block] -> channels
        for h in range(heads):
            logits = sum(scale * (cut(k, b, h) * cut(q, b, h)[i]).sum(1) for q, k in zip(qs, ks, strict=True))
            weights = (logits - logits.max()).exp() * (1 if valid is None else valid[b])
            weights = weights / weights.sum()
            of_heads.append([sum(weights[j] * cut(v, b, h)[j] for j in range(len(weights))) for v in vs])
        features[b, i] = pool_oracle(of_heads, x.shape[-1], pool_layout)
    return x + gamma * features


def pool_oracle(of_heads, dims, pool_layout):
    if pool_layout == 'head_layer_dim':
        return average_bins(torch.cat([channels for blocks in of_heads for channels in blocks]), dims)
    if len({len(channels) for channels in of_heads[0]}) == 1:
        return average_bins(torch.cat([torch.stack(blocks, dim=1).flatten() for blocks in of_heads]), dims)
    # No channel of one block has its match in another: each block is brought to the width by itself.
    blocks = [average_bins(torch.cat(channels), dims) for channels in zip(*of_heads, strict=True)]
    return sum(blocks) / len(blocks)


def max_pool_oracle(t_BhwC, hw, valid_Bhw=None):
    rows, cols = (bins(size, count) for size, count in zip(t_BhwC.shape[1:3], hw, strict=True))
    places = [(slice(None), slice(*row), slice(*col)) for row in rows for col in cols]
    if valid_Bhw is None:
        return torch.stack([t_BhwC[place].amax((1, 2)) for place in places], dim=1)
    return torch.stack(
        [torch.stack([max_of(t[m]) for t, m in zip(t_BhwC[p], valid_Bhw[p], strict=True)]) for p in places], dim=1
    )


def max_of(entries):
    """The largest of ``(n, C)``, channel by channel; 0 where there is none."""
    return entries.amax(0) if len(entries) else entries.new_zeros(entries.shape[1])


def unroll_oracle(rolled_BhwC, hw, shift):
    """Undoes the roll and the padding at bottom and right of a map."""
    height, width = rolled_BhwC.shape[1:3]
    rows = [
        torch.stack([rolled_BhwC[:, (y - shift) % height, (x - shift) % width] for x in range(hw[1])], dim=1)
        for y in range(hw[0])
    ]
    return torch.stack(rows, dim=1)


def unwindow_oracle(t_BWHNd, layout):
    """Windows to the rolled and padded map ``(B, h, w, C)``, token by token."""
    height, width = layout.padded
    side = layout.window
    rows = []
    for y in range(height):
        window = [(y // side) * (width // side) + x // side for x in range(width)]
        place = [(y % side) * side + x % side for x in range(width)]
        rows.append(torch.stack([t_BWHNd[:, w, :, n] for w, n in zip(window, place, strict=True)], dim=1))
    return torch.stack(rows, dim=1).flatten(3)


# --- the plug on q, k and v of our own ---


def random(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def run_plug(plug, plans, x, tapped, layout, record=None, valid=itertools.repeat(None)):
    network, layers = PlugSet([plug], len(plans)).build(plans)
    carry = network.start()
    for plan, layer, qkv, valid_BWN in zip(plans, layers, tapped, valid, strict=False):
        carry = layer.tap(*qkv, replace(plan.site, valid_keys=valid_BWN), carry)
    return network.finish(x, Site(layout), carry, record)


def gradients(out, leaves):
    """Of a scalar that weighs every output element differently; 0 where a leaf has no part in it."""
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * weights).sum(), leaves, materialize_grads=True, allow_unused=True)


def assert_same_with_gradients(got, expected, leaves):
    assert_close(got, expected)
    assert_close(gradients(got, leaves), gradients(expected, leaves))


def columnar_plans(layers, dims, heads, layout):
    return [LayerPlan(i, layers, dims, BlockShape.stock(dims, h, 8), Site(layout)) for i, h in enumerate(heads)]


options = st.fixed_dictionaries(
    dict(
        gamma=st.sampled_from([1.0, 0.4, -2]),
        use_qk=st.booleans(),
        use_v=st.booleans(),
        scale=st.sampled_from(['embed', 'head', 'concat']),
        pool_layout=st.sampled_from(['head_layer_dim', 'head_dim_layer']),
    )
)


def chosen(tensors, all_of_them):
    return tensors if all_of_them else tensors[-1:]


@given(
    batch=st.integers(1, 2),
    layers=st.integers(1, 4),
    hw=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    prefix=st.integers(0, 2),
    heads=st.integers(1, 3),
    head_dims=st.integers(1, 4),
    one_head_first=st.booleans(),
    settings=options,
    fused=st.booleans(),
    padded=st.booleans(),
    seed=st.integers(0, 99),
)
def test_columnar_is_the_equation(
    batch, layers, hw, prefix, heads, head_dims, one_head_first, settings, fused, padded, seed
):
    generator = torch.Generator().manual_seed(seed)
    layout, tokens, dims = GlobalLayout(*hw, prefix), prefix + math.prod(hw), heads * head_dims
    of_blocks = [heads] * layers
    if one_head_first and layers > 1:
        of_blocks[0] = 1
    plans = columnar_plans(layers, dims, of_blocks, layout)
    x = random(generator, batch, tokens, dims)
    tapped = [[random(generator, batch, 1, h, tokens, dims // h) for _ in range(3)] for h in of_blocks]
    valid = torch.rand(batch, tokens, generator=generator) < 0.5
    valid[:, -1] = True
    with fused_attention(fused):
        masks = itertools.repeat(valid.unsqueeze(1) if padded else None)
        got = run_plug(BroadAttention(**settings), plans, x, tapped, layout, valid=masks)

    qs, ks, vs = ([t.squeeze(1).transpose(1, 2).flatten(2) for t in ts] for ts in zip(*tapped, strict=True))
    qs, ks, vs = chosen(qs, settings['use_qk']), chosen(ks, settings['use_qk']), chosen(vs, settings['use_v'])
    scale = {'embed': dims, 'head': head_dims, 'concat': len(qs) * head_dims}[settings['scale']] ** -0.5
    keys = valid if padded else None
    expected = broad_oracle(x, qs, ks, vs, heads, scale, settings['gamma'], settings['pool_layout'], keys)
    assert_same_with_gradients(got, expected, [x, *itertools.chain(*tapped)])


@st.composite
def hierarchies(draw):
    """Plans of two or three stages of one or two blocks with windows, as a host would make them."""
    plans, hw, window = [], (draw(st.integers(1, 9)), draw(st.integers(1, 9))), draw(st.integers(1, 3))
    num_stages = draw(st.integers(2, 3))
    for stage in range(num_stages):
        shape = BlockShape(draw(st.integers(1, 4)), *[draw(st.sampled_from([1, 2, 3, 4, 6]))] * 3, 8)
        for _ in range(draw(st.integers(1, 2))):
            layout = WindowLayout(*hw, window, draw(st.integers(0, window - 1)))
            dims = shape.head_dims * shape.map_heads
            plans.append(LayerPlan(len(plans), 0, dims, shape, Site(layout), stage, num_stages))
        hw = tuple(-(-side // 2) for side in hw)
    return [replace(plan, num_layers=len(plans)) for plan in plans]


@given(batch=st.integers(1, 2), plans=hierarchies(), settings=options, fused=st.booleans(), seed=st.integers(0, 99))
def test_hierarchical_is_the_rule(batch, plans, settings, fused, seed):
    generator = torch.Generator().manual_seed(seed)
    tapped = []
    for plan in plans:
        windows, shape = math.prod(plan.site.layout.windows), plan.shape
        size = (batch, windows, shape.map_heads, plan.grid.num_tokens, shape.head_dims)
        tapped.append([random(generator, *size) for _ in range(3)])
    last = plans[-1]
    hw = last.site.layout.hw
    x = random(generator, batch, hw[0] * hw[1], last.embed_dims)
    with fused_attention(fused):
        got = run_plug(BroadAttention(**settings), plans, x, tapped, GlobalLayout(*hw))

    taken = [p for p in plans if p.index + 1 == len(plans) or plans[p.index + 1].stage > p.stage]
    pooled = []
    for plan in taken:
        layout = plan.site.layout
        rolled = [unwindow_oracle(t, layout) for t in tapped[plan.index]]
        maps = [unroll_oracle(t, (layout.height, layout.width), layout.shift) for t in rolled]
        pooled.append([max_pool_oracle(t, hw) for t in maps])
    expected = hierarchical_oracle(x, pooled, last.num_heads, settings)
    assert_same_with_gradients(got, expected, [x, *itertools.chain(*tapped)])


@settings(max_examples=25)
@given(
    plans=hierarchies(),
    settings=options,
    fused=st.booleans(),
    shares=st.tuples(*[st.floats(0.1, 1)] * 4),
    seed=st.integers(0, 99),
)
def test_hierarchical_leaves_padding_out(plans, settings, fused, shares, seed):
    """Two images, whose valid tokens lie at top left; what becomes of the others' outputs does not matter."""
    generator, sizes = torch.Generator().manual_seed(seed), [shares[:2], shares[2:]]
    tapped, valid, masks = [], [], []
    for plan in plans:
        shape, layout = plan.shape, plan.site.layout
        size = (2, math.prod(layout.windows), shape.map_heads, plan.grid.num_tokens, shape.head_dims)
        tapped.append([random(generator, *size) for _ in range(3)])
        first = plans[0].site.layout
        mask = torch.zeros(2, layout.height, layout.width, dtype=torch.bool)
        for own, share in zip(mask, sizes, strict=True):
            rows, cols = (math.ceil(s * side) for s, side in zip(share, (first.height, first.width), strict=True))
            own[: -(-rows // 2**plan.stage), : -(-cols // 2**plan.stage)] = True
        valid.append(layout.to_windows(mask.flatten(1).unsqueeze(-1)).squeeze(-1))
        masks.append(mask)
    last = plans[-1]
    hw = last.site.layout.hw
    x = random(generator, 2, hw[0] * hw[1], last.embed_dims)
    with fused_attention(fused):
        got = run_plug(BroadAttention(**settings), plans, x, tapped, GlobalLayout(*hw), valid=valid)

    pooled = []
    for plan in [p for p in plans if p.index + 1 == len(plans) or plans[p.index + 1].stage > p.stage]:
        layout = plan.site.layout
        rolled = [unwindow_oracle(t, layout) for t in tapped[plan.index]]
        maps = [unroll_oracle(t, (layout.height, layout.width), layout.shift) for t in rolled]
        pooled.append([max_pool_oracle(t, hw, masks[plan.index]) for t in maps])
    own = masks[-1].flatten(1)
    expected = hierarchical_oracle(x, pooled, last.num_heads, settings, own)
    assert got.isfinite().all()
    assert_same_with_gradients(got[own], expected[own], [x, *itertools.chain(*tapped)])


def hierarchical_oracle(x, pooled, last_heads, settings, valid=None):
    """The rule after the pooling over space; ``pooled`` are q, k and v ``(B, N, C_s)`` of every stage."""
    qs, ks, vs = zip(*pooled, strict=True)
    qs, ks, vs = chosen(qs, settings['use_qk']), chosen(ks, settings['use_qk']), chosen(vs, settings['use_v'])
    widths = [t.shape[-1] for t in (*qs, *vs)]
    heads = max(h for h in range(1, last_heads + 1) if last_heads % h == 0 and all(w % h == 0 for w in widths))
    dims = x.shape[-1]
    concat = sum(q.shape[-1] for q in qs) // heads
    scale = {'embed': dims, 'head': dims // last_heads, 'concat': concat}[settings['scale']] ** -0.5
    return broad_oracle(x, qs, ks, vs, heads, scale, settings['gamma'], settings['pool_layout'], valid)


def test_prefix_tokens_of_a_hierarchical_host_stay_as_they_are():
    """Their maps have no place for them."""
    generator = torch.Generator().manual_seed(0)
    layouts = [GlobalLayout(4, 6, 1), GlobalLayout(2, 3, 1)]
    plans = [LayerPlan(i, 2, 4, BlockShape.stock(4, 2, 8), Site(layout), i, 2) for i, layout in enumerate(layouts)]
    tapped = [[random(generator, 2, 1, 2, layout.grid.num_tokens, 2) for _ in range(3)] for layout in layouts]
    x = random(generator, 2, 7, 4)
    got = run_plug(BroadAttention(), plans, x, tapped, layouts[-1])
    maps = [
        [t.squeeze(1).transpose(1, 2).flatten(2)[:, 1:].unflatten(1, layout.hw) for t in qkv]
        for qkv, layout in zip(tapped, layouts, strict=True)
    ]
    pooled = [[max_pool_oracle(t, (2, 3)) for t in qkv] for qkv in maps]
    defaults = dict(gamma=1.0, use_qk=True, use_v=True, scale='embed', pool_layout='head_layer_dim')
    assert_close(got[:, 1:], hierarchical_oracle(x[:, 1:], pooled, 2, defaults))
    assert torch.equal(got[:, 0], x[:, 0])


@st.composite
def pooling_hierarchies(draw):
    """Plans of two or three stages of global attention, whose keys lie on finer or coarser grids than the queries."""
    plans, num_stages, prefix = [], draw(st.integers(2, 3)), draw(st.integers(0, 1))
    side = st.integers(1, 5)
    for stage in range(num_stages):
        shape = BlockShape(draw(st.integers(1, 3)), *[draw(st.sampled_from([1, 2, 4]))] * 3, 8)
        for _ in range(draw(st.integers(1, 2))):
            queries = GlobalLayout(draw(side), draw(side), prefix)
            keys = draw(st.none() | st.builds(GlobalLayout, side, side, st.just(prefix)))
            dims = shape.head_dims * shape.map_heads
            plans.append(LayerPlan(len(plans), 0, dims, shape, Site(queries, keys), stage, num_stages))
    return [replace(plan, num_layers=len(plans)) for plan in plans]


def top_left(layout, shares):
    """Two images with tokens at top left of the map, ``(2, N)``; prefix tokens count."""
    mask = torch.zeros(2, layout.height, layout.width, dtype=torch.bool)
    for own, share in zip(mask, shares, strict=True):
        own[: math.ceil(share[0] * layout.height), : math.ceil(share[1] * layout.width)] = True
    return torch.cat((mask.new_ones(2, layout.num_prefix), mask.flatten(1)), dim=1)


@pytest.mark.integration
@given(
    plans=pooling_hierarchies(),
    settings=options,
    fused=st.booleans(),
    shares=st.none() | st.tuples(*[st.tuples(st.floats(0.1, 1), st.floats(0.1, 1))] * 2),
    seed=st.integers(0, 99),
)
def test_pooled_keys_have_the_grid_of_the_last_ones(plans, settings, fused, shares, seed):
    """And queries that of the last queries; a class token stays as it is."""
    generator, sites, tapped = torch.Generator().manual_seed(seed), [], []
    for plan in plans:
        site, shape = plan.site, plan.shape
        if shares is not None:
            site = replace(site, valid=top_left(site.layout, shares))
            if site.keys is not None:
                site = replace(site, valid_keys=top_left(site.keys, shares).unsqueeze(1))
        sites.append(site.in_windows(torch.device('cpu')))
        pairs = site.pairs
        tokens = (pairs.queries.num_tokens, pairs.keys.num_tokens, pairs.keys.num_tokens)
        tapped.append([random(generator, 2, 1, shape.map_heads, n, shape.head_dims) for n in tokens])
    last, prefix = plans[-1], plans[-1].grid.num_prefix
    x = random(generator, 2, last.grid.num_tokens, last.embed_dims)
    network, layers = PlugSet([BroadAttention(**settings)], len(plans)).build(plans)
    carry = network.start()
    with fused_attention(fused):
        for site, layer, qkv in zip(sites, layers, tapped, strict=True):
            carry = layer.tap(*qkv, site, carry)
        got = network.finish(x, Site(last.site.layout), carry, None)

    pooled, to = [], [last.site.layout, *[last.site.key_layout] * 2]
    for plan in [p for p in plans if p.index + 1 == len(plans) or plans[p.index + 1].stage > p.stage]:
        stage = []
        for t, target, layout in zip(
            tapped[plan.index], to, (plan.site.layout, *[plan.site.key_layout] * 2), strict=True
        ):
            tokens = t.squeeze(1).transpose(1, 2).flatten(2)[:, prefix:].unflatten(1, layout.hw)
            valid = None if shares is None else top_left(layout, shares)[:, prefix:].unflatten(1, layout.hw)
            stage.append(max_pool_oracle(tokens, target.hw, valid))
        pooled.append(stage)
    keys = None if shares is None else top_left(last.site.key_layout, shares)[:, prefix:]
    expected = hierarchical_oracle(x[:, prefix:], pooled, last.num_heads, settings, keys)
    assert torch.equal(got[:, :prefix], x[:, :prefix])
    counts = slice(None) if shares is None else top_left(last.site.layout, shares)[:, prefix:]
    assert_same_with_gradients(got[:, prefix:][counts], expected[counts], [x, *itertools.chain(*tapped)])


# --- the plug in its hosts ---

SETTINGS = {
    'default': {},
    'layer mean': dict(pool_layout='head_dim_layer', gamma=0.4),
    'concat scale': dict(scale='concat', use_v=False),
    'head scale': dict(scale='head', use_qk=False),
}


def complete(settings):
    return dict(dict(gamma=1.0, use_qk=True, use_v=True, scale='embed', pool_layout='head_layer_dim'), **settings)


def qkv_of(model, x):
    """The output, and what the projections to q, k and v give, ``(B, W, N, C)`` each, block by block."""
    seen, project = [], SelfAttention.project

    def projecting(attention, *args):
        seen.append(project(attention, *args))
        return seen[-1]

    with patch.object(SelfAttention, 'project', projecting):
        out = model(x)[-1]
    return out, [t.chunk(3, dim=-1) for t in seen]


def pair_of_hosts(host, settings, **host_settings):
    plain = randomize(host(**host_settings)).double().eval()
    plugged = host(plugs=[dict(type='BroadAttention', **settings)], **host_settings).double().eval()
    plugged.load_state_dict(plain.state_dict())
    return plain, plugged


def assert_same_in_host(plain, plugged, got, expected):
    leaves = [list(model.parameters()) for model in (plugged, plain)]
    assert_close(got, expected)
    assert_close(gradients(got, leaves[0]), gradients(expected, leaves[1]))


@pytest.mark.sampled(5)
@pytest.mark.parametrize('size', [(32, 40), (24, 24), (8, 8)], ids=str)
@pytest.mark.parametrize('case', SETTINGS)
@pytest.mark.parametrize('has_cls', [True, False])
def test_vit_with_broad_attention(has_cls, case, size):
    """On the last block's output, with the very q, k and v of the blocks; down to one token."""
    host = dict(with_cls_token=has_cls, out_type='raw', final_norm=False)
    plain, plugged = pair_of_hosts(vit, SETTINGS[case], **host)
    settings = complete(SETTINGS[case])
    out, qkv = qkv_of(plain, images(*size))
    qs, ks, vs = ([t.squeeze(1) for t in part] for part in zip(*qkv, strict=True))
    qs, ks, vs = chosen(qs, settings['use_qk']), chosen(ks, settings['use_qk']), chosen(vs, settings['use_v'])
    scale = {'embed': 24, 'head': 8, 'concat': 4 * 8}[settings['scale']] ** -0.5
    expected = broad_oracle(out, qs, ks, vs, 3, scale, settings['gamma'], settings['pool_layout'])
    assert_same_in_host(plain, plugged, plugged(images(*size))[0], expected)


def test_vit_normalises_after_it():
    plain, plugged = pair_of_hosts(vit, {}, out_type='raw')
    _, bare = pair_of_hosts(vit, {}, out_type='raw', final_norm=False)
    bare.load_state_dict(plain.state_dict(), strict=False)
    x = images(32, 40)
    assert_close(plugged(x)[0], plain.ln1(bare(x)[0]))


def test_only_the_last_output_of_vit_has_it():
    plain, plugged = pair_of_hosts(vit, {}, out_indices=(1, 3))
    (early, late), (expected_early, expected_late) = plugged(images(32, 40)), plain(images(32, 40))
    assert torch.equal(early, expected_early)
    assert not torch.allclose(late, expected_late)


SWIN_ARCHS = {
    'two stages': dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4]),
    'last block regular': dict(embed_dims=12, depths=[2, 1], num_heads=[2, 4]),
    'three stages': dict(embed_dims=6, depths=[1, 2, 2], num_heads=[3, 2, 6]),
    'merged heads': dict(embed_dims=6, depths=[2, 2], num_heads=[3, 4]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize('size', [(32, 32), (37, 51)], ids=str)
@pytest.mark.parametrize('case', SETTINGS)
@pytest.mark.parametrize('arch', SWIN_ARCHS)
def test_swin_with_broad_attention(arch, case, size):
    arch, settings = SWIN_ARCHS[arch], complete(SETTINGS[case])
    stages = len(arch['depths'])
    host = dict(arch=arch, norm_cfg=None, pad_small_map=True, out_indices=(stages - 1,))
    plain, plugged = pair_of_hosts(swin, SETTINGS[case], **host)
    out, qkv = qkv_of(plain, images(*size, batch=1))
    maps, hw = [], [-(-side // 4) for side in size]
    for stage in range(stages):
        last = sum(arch['depths'][: stage + 1]) - 1
        shift = 2 if arch['depths'][stage] % 2 == 0 else 0
        layout = WindowLayout(*hw, 4, shift)
        rolled = [unwindow_oracle(t.unsqueeze(2), layout) for t in qkv[last]]
        maps.append([unroll_oracle(t, hw, shift) for t in rolled])
        hw = [-(-side // 2) for side in hw]
    pooled = [[max_pool_oracle(t, out.shape[2:]) for t in stage] for stage in maps]
    expected = hierarchical_oracle(out.flatten(2).transpose(1, 2), pooled, arch['num_heads'][-1], settings)
    got = plugged(images(*size, batch=1))[0].flatten(2).transpose(1, 2)
    assert_same_in_host(plain, plugged, got, expected)


def test_only_the_last_stage_of_swin_has_it():
    plain, plugged = pair_of_hosts(swin, {})
    (early, late), (expected_early, expected_late) = plugged(images(32, 40)), plain(images(32, 40))
    assert torch.equal(early, expected_early)
    assert not torch.allclose(late, expected_late)


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('settings', [{}, dict(use_qk=False), dict(use_v=False), dict(pool_layout='head_dim_layer')])
def test_gamma_of_zero_is_the_plain_host_bit_for_bit(host, settings):
    plain = randomize(HOSTS[host]()).eval()
    plugged = HOSTS[host](plugs=[dict(type='BroadAttention', gamma=0, **settings)]).eval()
    plugged.load_state_dict(plain.state_dict())
    x = images(37, 51, dtype=torch.float32)
    for expected, got in zip(plain(x), plugged(x), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize('host', HOSTS)
def test_nothing_is_learned(host):
    plugged = HOSTS[host](plugs=[dict(type='BroadAttention')])
    assert set(plugged.state_dict()) == set(HOSTS[host]().state_dict())


@pytest.mark.parametrize(
    ('settings', 'expected'),
    [
        ({}, ['qkv', 'qkv', 'qkv', 'qkv']),
        (dict(layers='upper'), ['', '', 'qkv', 'qkv']),
        (dict(layers=[0, 2]), ['qkv', '', 'qkv', '']),
        (dict(use_qk=False), ['v', 'v', 'v', 'qkv']),
        (dict(use_v=False, layers=[1, 2]), ['', 'qk', 'qkv', '']),
        (dict(use_qk=False, use_v=False), ['', '', '', 'qkv']),
        (dict(layers=[]), ['', '', '', '']),
    ],
)
def test_blocks_keep_only_what_is_needed(settings, expected):
    blocks = vit(plugs=[dict(type='BroadAttention', **settings)]).plugged_blocks()
    assert [''.join(name for tap in block.plugs.at('tap') for name in tap.names) for block in blocks] == expected


@pytest.mark.parametrize(
    ('layers', 'expected'),
    [('all', [False, True, False, True]), ([0, 3], [True, False, False, True]), ([2], [False, False, True, False])],
)
def test_the_last_chosen_block_of_a_stage_takes_part(layers, expected):
    blocks = swin(plugs=[dict(type='BroadAttention', layers=layers)]).plugged_blocks()
    assert [bool(block.plugs.at('tap')) for block in blocks] == expected


def test_the_carry_is_never_changed():
    """Activation checkpointing may run a block twice with the carry it had."""
    block = vit(plugs=[dict(type='BroadAttention')]).plugged_blocks()[0]
    qkv = [torch.randn(1, 1, 3, 4, 8) for _ in range(3)]
    site = Site(GlobalLayout(2, 2))
    first = block.plugs.tap(*qkv, site, {'else': 1})
    before = {name: list(tensors) for name, tensors in first['broad'].items()}
    second = block.plugs.tap(*qkv, site, first)
    assert [len(second['broad'][name]) for name in 'qkv'] == [2, 2, 2] and second['else'] == 1
    assert {name: list(tensors) for name, tensors in first['broad'].items()} == before


def test_no_layers_is_the_plain_host():
    plain, plugged = pair_of_hosts(vit, dict(layers=[]))
    assert torch.equal(plugged(images(32, 40))[0], plain(images(32, 40))[0])


# --- what follows from the equations ---

shapes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 6), st.integers(1, 4))


def columnar(settings, tapped):
    """The feature alone, ``(B, N, D)``, of q, k and v ``(B, 1, H, N, d)`` of every block."""
    batch, _, heads, n, width = tapped[0][0].shape
    layout = GlobalLayout(1, n)
    plans = columnar_plans(len(tapped), heads * width, [heads] * len(tapped), layout)
    x = torch.zeros(batch, n, heads * width, dtype=tapped[0][0].dtype)
    return run_plug(BroadAttention(**settings), plans, x, tapped, layout)


def draw_blocks(shape, layers, seed):
    generator = torch.Generator().manual_seed(seed)
    batch, heads, n, width = shape
    return [[random(generator, batch, 1, heads, n, width) for _ in range(3)] for _ in range(layers)]


@given(shape=shapes, layers=st.integers(1, 4), seed=st.integers(0, 99))
def test_layer_mean_is_the_mean_of_v(shape, layers, seed):
    tapped = draw_blocks(shape, layers, seed)
    mean = torch.stack([v for *_, v in tapped]).mean(0)
    of_mean = [*tapped[:-1], (*tapped[-1][:2], mean)]
    expected = columnar(dict(use_v=False), of_mean)
    assert_close(columnar(dict(pool_layout='head_dim_layer'), tapped), expected)


@given(shape=shapes, layers=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_token_needs_only_its_own_queries(shape, layers, seed):
    """So the class token's feature could be had from its queries alone."""
    tapped = draw_blocks(shape, layers, seed)
    others = [(torch.cat((q[..., :1, :], torch.randn_like(q[..., 1:, :])), dim=-2), k, v) for q, k, v in tapped]
    assert_close(columnar({}, others)[:, 0], columnar({}, tapped)[:, 0])


@given(shape=shapes, layers=st.integers(1, 4), seed=st.integers(0, 99))
def test_pooling_of_channels_commutes_with_attention(shape, layers, seed):
    """Value channels are pooled before the attention; here they are after it, over all heads at once."""
    tapped = draw_blocks(shape, layers, seed)
    q, k, v = (torch.cat(ts, dim=-1).squeeze(1) for ts in zip(*tapped, strict=True))
    out = ((q @ k.mT) * (shape[1] * shape[3]) ** -0.5).softmax(-1) @ v
    pooled = torch.nn.functional.adaptive_avg_pool1d(out.transpose(1, 2).flatten(2), shape[1] * shape[3])
    assert_close(columnar({}, tapped), pooled)


@given(shape=shapes, layers=st.integers(1, 4), seed=st.integers(0, 99), seed2=st.integers(0, 99))
def test_order_of_the_blocks_matters_only_to_the_pooling(shape, layers, seed, seed2):
    tapped = draw_blocks(shape, layers, seed)
    order = torch.randperm(layers, generator=torch.Generator().manual_seed(seed2)).tolist()
    mean = dict(pool_layout='head_dim_layer')
    assert_close(columnar(mean, [tapped[i] for i in order]), columnar(mean, tapped))


def test_default_pooling_averages_neighbours_of_mostly_one_block():
    """With 12 blocks and heads of 64 channels, 56 of the 64 outputs see 12 channels of one block each."""
    tapped = draw_blocks((1, 1, 1, 64), 12, 0)
    feature = columnar({}, tapped)[0, 0]
    sources = []
    for output in feature:
        grads = torch.autograd.grad(output, [v for *_, v in tapped], retain_graph=True)
        seen = {layer: grad.flatten().nonzero().flatten().tolist() for layer, grad in enumerate(grads) if grad.any()}
        assert sum(len(channels) for channels in seen.values()) == 12
        sources.append(seen)
    assert [list(seen) for seen in sources[:6]] == [[0]] * 5 + [[0, 1]]
    assert sources[0] == {0: list(range(12))}
    assert sources[5] == {0: [60, 61, 62, 63], 1: list(range(8))}
    assert sum(len(seen) > 1 for seen in sources) == 8


@pytest.mark.parametrize('stages', [(96, 192, 384, 768), (64, 160, 256)], ids=str)
@pytest.mark.parametrize('heads', [8, 24, 32])
def test_bins_of_the_pooling_stay_inside_a_head(stages, heads):
    """Because the output has as many equal heads as the input: so V may be pooled head by head."""
    heads = math.gcd(heads, *stages)
    width, wanted = sum(stages) // heads, stages[-1] // heads
    by_head = [(h * width + a, h * width + b) for h in range(heads) for a, b in bins(width, wanted)]
    assert bins(sum(stages), stages[-1]) == by_head


# --- the map by name ---


@pytest.mark.parametrize('host', ONE_GRID_HOSTS)
def test_broad_probs_can_be_asked_for(host):
    model = randomize(HOSTS[host](plugs=[dict(type='BroadAttention')])).double().eval()
    x = images(32, 48)
    outs, found = model.forward_intermediates(x, 'broad_probs')
    assert_close(outs, model(x))
    assert list(found) == ['broad_probs'] and list(found['broad_probs']) == [3]
    probs = found['broad_probs'][3]
    n = model.forward_intermediates(x, 'block', layers=[3])[1]['block'][3].shape[1]
    assert probs.shape == (2, 1, model.plugged_blocks()[-1].shape.map_heads, n, n)
    assert_close(probs.sum(-1), torch.ones_like(probs[..., 0]))
    with fused_attention(False):
        plain_outs, plain = model.forward_intermediates(x, ['block', 'broad_probs'])
    assert_close(plain['broad_probs'][3], probs)
    (grad,) = torch.autograd.grad(plain_outs[-1].square().sum(), plain['broad_probs'][3])
    assert grad.abs().sum() > 0


def test_broad_probs_are_the_softmax_of_the_summed_scores():
    model = randomize(vit(plugs=[dict(type='BroadAttention', scale='head')])).double().eval()
    _, found = model.forward_intermediates(images(32, 48), ['scores', 'broad_probs'])
    assert_close(found['broad_probs'][3], sum(found['scores'].values()).softmax(-1))


def test_broad_probs_of_one_block_are_its_own():
    model = randomize(vit(plugs=[dict(type='BroadAttention', scale='head', use_qk=False)])).double().eval()
    _, found = model.forward_intermediates(images(32, 48), ['probs', 'broad_probs'])
    assert_close(found['broad_probs'][3], found['probs'][3])


@pytest.mark.parametrize(('plugs', 'layers'), [([], 'all'), ([dict(type='BroadAttention')], [0, 1])])
def test_no_broad_probs_where_there_are_none(plugs, layers):
    assert vit(plugs=plugs).forward_intermediates(images(32, 48).float(), 'broad_probs', layers)[1] == {}


# --- half precision, other plugs, complaints ---


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('autocast', [True, False])
def test_sums_of_huge_scores_stay_finite_in_half_precision(autocast, fused):
    """12 blocks of scores around 1e4: their sum is beyond float16."""
    generator = torch.Generator().manual_seed(0)
    tapped = [[torch.randn(1, 1, 1, 8, 16, generator=generator) for _ in range(3)] for _ in range(12)]
    for q, k, _ in tapped:
        k.copy_(q.sign())
        q.mul_(1e4 / (q.abs().sum(-1, keepdim=True).mean() * 16**-0.5))
    assert sum(q @ k.mT for q, k, _ in tapped).max() * 16**-0.5 > 65504
    tapped = [[t.half().requires_grad_() for t in qkv] for qkv in tapped]
    layout = GlobalLayout(1, 8)
    plans = columnar_plans(12, 16, [1] * 12, layout)
    x = torch.zeros(1, 8, 16, dtype=torch.float32 if autocast else torch.float16)
    record = LayerRecord(frozenset(['broad_probs']))
    with fused_attention(fused), torch.autocast('cpu', torch.float16, enabled=autocast):
        out = run_plug(BroadAttention(), plans, x, tapped, layout, record)
    assert out.dtype == x.dtype and out.isfinite().all()
    assert record.kept['broad_probs'].isfinite().all()
    # Every token finds itself: attention of such scores picks one value.
    own = torch.cat([v for *_, v in tapped], dim=-1)[0, 0].unflatten(-1, (16, 12)).float().mean(-1)
    assert_close(out.float(), own, rtol=2e-3, atol=2e-3)
    grads = torch.autograd.grad(out.float().square().sum(), [t for qkv in tapped for t in qkv])
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_tokens_keep_their_dtype(dtype):
    """Under autocast q, k and v may be of another than the residual stream."""
    layout = GlobalLayout(2, 2)
    plans = columnar_plans(2, 4, [2, 2], layout)
    tapped = [[torch.randn(1, 1, 2, 4, 2) for _ in range(3)] for _ in range(2)]
    assert run_plug(BroadAttention(), plans, torch.zeros(1, 4, 4, dtype=dtype), tapped, layout).dtype == dtype


def test_it_goes_with_plugs_that_change_maps():
    """It takes q, k and v, whatever becomes of the block's own scores."""
    alone = randomize(vit(plugs=[dict(type='BroadAttention')]))
    model = vit(plugs=[dict(type=CarryProbe), dict(type='BroadAttention')])
    site = Site(GlobalLayout(2, 2))
    assert not model.plugged_blocks()[0].plugs.fuses(site) and alone.plugged_blocks()[0].plugs.fuses(site)
    model = randomize(model).double().eval()
    _, found = model.forward_intermediates(images(32, 48), ['scores', 'broad_probs'])
    summed = sum(found['scores'].values()) * (8 / 24) ** 0.5
    assert_close(found['broad_probs'][3], summed.softmax(-1))


BAD_ARGUMENTS = {
    'gamma no number': (dict(gamma='1'), r"gamma='1': expected a number"),
    'gamma a flag': (dict(gamma=True), r'gamma=True: expected a number'),
    'gamma infinite': (dict(gamma=math.inf), r'gamma=inf: expected a number'),
    'gamma no number at all': (dict(gamma=math.nan), r'gamma=nan: expected a number'),
    'use_qk no flag': (dict(use_qk=1), r'use_qk=1: expected True or False'),
    'use_v no flag': (dict(use_v=None), r'use_v=None: expected True or False'),
    'unknown scale': (dict(scale='dim'), r"scale='dim': expected one of .*embed.*head.*concat"),
    'unknown layout': (dict(pool_layout='layer'), r"pool_layout='layer': expected one of .*head_dim_layer"),
    'unknown layers': (dict(layers='lower'), r"layers='lower': expected 'all'"),
    'layer too high': (dict(layers=[4]), r'BroadAttention: layers=\[4\].*0 to 3'),
}


@pytest.mark.parametrize('case', BAD_ARGUMENTS)
def test_bad_arguments_are_named(case):
    settings, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        vit(plugs=[dict(type='BroadAttention', **settings)])


@pytest.mark.parametrize('layers', [[0], [0, 1]])
def test_hierarchical_hosts_need_the_last_stage(layers):
    with pytest.raises(ValueError, match=r'layers=\[0.*no block of the last stage.*add its last block'):
        swin(plugs=[dict(type='BroadAttention', layers=layers)])


class OtherHeads(Plug):
    name = 'other-heads'

    def shape_block(self, shape, index, num_layers):
        return replace(shape, value_heads=shape.value_heads + 1, out_heads=shape.out_heads + 1) if index == 1 else shape


def test_blocks_with_other_heads_are_refused():
    with pytest.raises(ValueError, match=r'block 1 has 3 heads with q and k and 4 with v.*layers=\[...\]'):
        vit(plugs=[dict(type='BroadAttention'), dict(type=OtherHeads)])
    vit(plugs=[dict(type='BroadAttention', layers=[0, 2, 3]), dict(type=OtherHeads)])
    vit(plugs=[dict(type='BroadAttention', use_qk=False, use_v=False), dict(type=OtherHeads)])


def test_blocks_without_queries_are_refused():
    plans = columnar_plans(2, 4, [2, 2], GlobalLayout(1, 1))
    plans[1] = replace(plans[1], shape=replace(plans[1].shape, map_heads=0, value_heads=0))
    with pytest.raises(ValueError, match=r'block 1 has 0 heads with q and k and 0 with v'):
        PlugSet([BroadAttention()], 2).build(plans)


@pytest.mark.parametrize('host', [vit, swin])
def test_attention_stays_fused(host, mm_log):
    host(plugs=[dict(type='BroadAttention', gamma=0.4)])
    (line,) = [record.message for record in mm_log.records if 'plugs:' in record.message]
    assert 'BroadAttention(gamma=0.4) on blocks 0-3' in line and line.endswith('attention: fused')
