"""Broad Attention against its equations, token by token, head by head and channel by channel."""

import itertools
import math

import pytest
import torch
from attention_oracle import assert_same
from cases import images, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, LayerRecord, Site, WindowLayout, fused_attention
from vitplug.compat import replace
from vitplug.plugs import BlockShape, BroadAttention, LayerPlan, PlugSet

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


def to_map(t_BWHNd, layout):
    """Tokens of windows, or of the whole image behind prefix tokens, as the map ``(B, h, w, C)``."""
    tokens = layout.from_windows(t_BWHNd.transpose(2, 3).flatten(3))
    return tokens[:, layout.num_prefix :].unflatten(1, layout.hw)


# --- the plug on q, k and v of our own ---


def random(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def run_plug(plug, plans, sites, x, tapped, record=None):
    network, layers = PlugSet([plug], len(plans)).build(plans)
    carry = network.start()
    for site, layer, qkv in zip(sites, layers, tapped, strict=True):
        for module in layer.at('tap'):
            carry = module(*qkv, site, carry)
    return network.finish(x, Site(plans[-1].site.layout), carry, record)


def columnar_plans(layers, dims, heads, layout):
    return [LayerPlan(i, layers, dims, BlockShape.stock(dims, h, 8), Site(layout)) for i, h in enumerate(heads)]


counts = st.integers(0, 1)
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
        sites = [replace(plan.site, valid_keys=valid.unsqueeze(1) if padded else None) for plan in plans]
        got = run_plug(BroadAttention(**settings), plans, sites, x, tapped)

    qs, ks, vs = ([t.squeeze(1).transpose(1, 2).flatten(2) for t in ts] for ts in zip(*tapped, strict=True))
    qs, ks, vs = chosen(qs, settings['use_qk']), chosen(ks, settings['use_qk']), chosen(vs, settings['use_v'])
    scale = {'embed': dims, 'head': head_dims, 'concat': len(qs) * head_dims}[settings['scale']] ** -0.5
    keys = valid if padded else None
    expected = broad_oracle(x, qs, ks, vs, heads, scale, settings['gamma'], settings['pool_layout'], keys)
    assert_same([got], [expected], [x, *itertools.chain(*tapped)])


@st.composite
def hierarchies(draw):
    """Plans of two or three stages of one or two blocks, as a host would make them.

    Blocks attend in windows of maps that get coarser, or globally, with keys on finer or coarser grids than queries.
    """
    plans, num_stages, is_windowed = [], draw(st.integers(2, 3)), draw(st.booleans())
    hw, window, prefix = (draw(st.integers(1, 9)), draw(st.integers(1, 9))), draw(st.integers(1, 3)), draw(counts)
    grids = st.builds(GlobalLayout, st.integers(1, 5), st.integers(1, 5), st.just(prefix))
    for stage in range(num_stages):
        shape = BlockShape(draw(st.integers(1, 4)), *[draw(st.sampled_from([1, 2, 3, 4, 6]))] * 3, 8)
        for _ in range(draw(st.integers(1, 2))):
            site = Site(draw(grids), draw(st.none() | grids))
            if is_windowed:
                site = Site(WindowLayout(*hw, window, draw(st.integers(0, window - 1))))
            dims = shape.head_dims * shape.map_heads
            plans.append(LayerPlan(len(plans), 0, dims, shape, site, stage, num_stages))
        hw = tuple(-(-side // 2) for side in hw)
    return [replace(plan, num_layers=len(plans)) for plan in plans]


def top_left(layout, shares):
    """Two images with tokens at top left of the map, ``(2, N)``; prefix tokens count."""
    mask = torch.zeros(2, layout.height, layout.width, dtype=torch.bool)
    for own, share in zip(mask, shares, strict=True):
        own[: math.ceil(share[0] * layout.height), : math.ceil(share[1] * layout.width)] = True
    return torch.cat((mask.new_ones(2, layout.num_prefix), mask.flatten(1)), dim=1)


def padded_site(site, shares):
    if shares is not None:
        site = replace(site, valid=top_left(site.layout, shares))
        if site.keys is not None:
            site = replace(site, valid_keys=top_left(site.keys, shares).unsqueeze(1))
    return site.in_windows(torch.device('cpu'))


@settings(max_examples=30)
@given(
    plans=hierarchies(),
    settings=options,
    fused=st.booleans(),
    shares=st.none() | st.tuples(*[st.tuples(st.floats(0.1, 1), st.floats(0.1, 1))] * 2),
    seed=st.integers(0, 99),
)
def test_hierarchical_is_the_rule(plans, settings, fused, shares, seed):
    """Of two images, padded or not; prefix tokens stay as they are, and what becomes of padding does not matter."""
    generator, tapped = torch.Generator().manual_seed(seed), []
    for plan in plans:
        windows, grids = math.prod(plan.site.layout.windows), plan.site.pairs
        sizes = (grids.queries.num_tokens, *[grids.keys.num_tokens] * 2)
        tapped.append([random(generator, 2, windows, plan.shape.map_heads, n, plan.shape.head_dims) for n in sizes])
    last = plans[-1]
    prefix, to = last.grid.num_prefix, [last.site.layout, *[last.site.key_layout] * 2]
    x = random(generator, 2, prefix + math.prod(to[0].hw), last.embed_dims)
    with fused_attention(fused):
        got = run_plug(BroadAttention(**settings), plans, [padded_site(p.site, shares) for p in plans], x, tapped)

    def valid_map(layout):
        return None if shares is None else top_left(layout, shares)[:, layout.num_prefix :].unflatten(1, layout.hw)

    pooled = []
    for plan in [p for p in plans if p.index + 1 == len(plans) or plans[p.index + 1].stage > p.stage]:
        layouts = (plan.site.layout, *[plan.site.key_layout] * 2)
        parts = zip(tapped[plan.index], layouts, to, strict=True)
        pooled.append([max_pool_oracle(to_map(t, own), target.hw, valid_map(own)) for t, own, target in parts])
    keys = None if shares is None else valid_map(to[1]).flatten(1)
    counted = slice(None) if shares is None else valid_map(to[0]).flatten(1)
    expected = hierarchical_oracle(x[:, prefix:], pooled, last.num_heads, settings, keys)
    assert torch.equal(got[:, :prefix], x[:, :prefix]) and got.isfinite().all()
    assert_same([got[:, prefix:][counted]], [expected[counted]], [x, *itertools.chain(*tapped)])


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


# --- the plug in its hosts ---


def test_swin_with_broad_attention():
    """On the last stage's output alone, with q, k and v of the last block of each stage."""
    arch, x = dict(embed_dims=6, depths=[1, 2, 2], num_heads=[3, 2, 6]), images(37, 51, batch=1).requires_grad_()
    host = dict(arch=arch, norm_cfg=None, pad_small_map=True, out_indices=(0, 2))
    plain = randomize(swin(**host)).double().eval()
    plugged = swin(plugs='broad', **host).double().eval()
    plugged.load_state_dict(plain.state_dict())
    (_, out), found = plain.forward_intermediates(x, ('q', 'k', 'v', 'site'), with_grad=True)
    pooled = []
    for last in [end - 1 for end in itertools.accumulate(arch['depths'])]:
        maps = [to_map(found[name][last], found['site'][last].layout) for name in 'qkv']
        pooled.append([max_pool_oracle(t, out.shape[2:]) for t in maps])
    settings = dict(gamma=1.0, use_qk=True, use_v=True, scale='embed', pool_layout='head_layer_dim')
    expected = hierarchical_oracle(out.flatten(2).mT, pooled, arch['num_heads'][-1], settings)
    early, got = plugged(x)
    assert_same([got.flatten(2).mT], [expected], [x])
    assert torch.equal(early, plain(x)[0])


# --- the map by name ---


def test_broad_probs_are_the_softmax_of_the_summed_scores():
    model = randomize(vit(plugs=[dict(type='BroadAttention', scale='head')])).double().eval()
    _, found = model.forward_intermediates(images(32, 48), ['scores', 'broad_probs'])
    assert_close(found['broad_probs'][3], sum(found['scores'].values()).softmax(-1))


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
        out = run_plug(BroadAttention(), plans, [plan.site for plan in plans], x, tapped, record)
    assert out.dtype == x.dtype and out.isfinite().all()
    assert record.kept['broad_probs'].isfinite().all()
    # Every token finds itself: attention of such scores picks one value.
    own = torch.cat([v for *_, v in tapped], dim=-1)[0, 0].unflatten(-1, (16, 12)).float().mean(-1)
    assert_close(out.float(), own, rtol=2e-3, atol=2e-3)
    grads = torch.autograd.grad(out.float().square().sum(), [t for qkv in tapped for t in qkv])
    assert all(grad.isfinite().all() for grad in grads)
