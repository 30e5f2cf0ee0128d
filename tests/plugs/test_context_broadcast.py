"""Context Broadcasting against its equations, token by token."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from cases import HOSTS, ONE_GRID_HOSTS, SWIN_ARCH, images, randomize, swin, vit
from hypothesis import given
from hypothesis import strategies as st
from references import COUNTS
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, WindowLayout, attend
from vitplug.backbones import VisionTransformer
from vitplug.plugs import LayerPlugs
from vitplug.plugs.context_broadcast import Broadcast, Excitation, ScaledBroadcast, first_token, token_mean


def cb_oracle(x, scale=None):
    """Eq. (1): every token becomes the average of itself and the mean token; CB_S: x + Lambda * mean."""
    out = torch.zeros_like(x)
    batch, tokens, _ = x.shape
    for b in range(batch):
        mean = sum(x[b, j] for j in range(tokens)) / tokens
        for i in range(tokens):
            out[b, i] = x[b, i] / 2 + mean / 2 if scale is None else x[b, i] + scale * mean
    return out


def variant_oracle(mode, x, x0):
    """The other modes, token by token; ``x0`` is the class token or what stands in for it."""
    out = torch.zeros_like(x)
    batch, tokens, _ = x.shape
    for b in range(batch):
        mean = sum(x[b, j] for j in range(tokens)) / tokens
        highest = torch.stack([x[b, j] for j in range(tokens)]).max(dim=0).values
        for i in range(tokens):
            out[b, i] = {
                'max': x[b, i] / 2 + highest / 2,
                'cls': x[b, i] / 2 + x0[b] / 2,
                'gate': x[b, i] * (x0[b] + 1),
                'hybrid': x[b, i] * x0[b] + x[b, i] / 2 + mean / 2,
            }[mode]
    return out


def with_gradients(function, *inputs):
    """The output and the gradients of a scalar that weighs every output element differently."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    out = function(*inputs)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad((out * weights).sum(), inputs)


# Token sockets ask the site for the valid tokens alone.
SITE = Site(GlobalLayout(1, 1))
CB = partial(Broadcast('mean', first_token), site=SITE)


def scaled(x, scale):
    module = ScaledBroadcast(scale.numel(), 0.0).double()
    return torch.func.functional_call(module, {'cb_scale': scale}, (x, SITE))


shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5))


def tokens(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_is_the_equation(shape, seed):
    x = tokens(shape, seed)
    assert_close(with_gradients(CB, x), with_gradients(cb_oracle, x))


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_s_is_the_equation(shape, seed):
    x, scale = tokens(shape, seed), tokens(shape[-1:], seed + 1)
    assert_close(with_gradients(scaled, x, scale), with_gradients(cb_oracle, x, scale))


@given(shape=shapes, seed=st.integers(0, 99), mode=st.sampled_from(['max', 'cls', 'gate', 'hybrid']))
def test_modes_are_their_equations(shape, seed, mode):
    x = tokens(shape, seed)
    expected = with_gradients(lambda x: variant_oracle(mode, x, x[:, 0]), x)
    assert_close(with_gradients(partial(Broadcast(mode, first_token), site=SITE), x), expected)


@pytest.mark.parametrize('mode', ['cls', 'gate', 'hybrid'])
def test_class_token_modes_need_one_or_its_fallback(mode):
    for host in (swin, partial(vit, with_cls_token=False)):
        with pytest.raises(ValueError, match=rf"mode='{mode}' needs a class token.*cls_fallback='mean'"):
            host(plugs=[dict(type='ContextBroadcast', mode=mode)])
        model = host(plugs=[dict(type='ContextBroadcast', mode=mode, cls_fallback='mean')])
        module = model.plugged_blocks()[0].plugs['cb']['mlp_end']
        x = tokens((2, 6, 3), 0)
        assert_close(module(x, SITE), variant_oracle(mode, x, x.mean(1)))


def test_class_token_keeps_its_value_in_mode_cls():
    x = tokens((2, 5, 3), 0)
    assert_close(Broadcast('cls', first_token)(x, SITE)[:, 0], x[:, 0])


def excitation_oracle(module, x):
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        mean = sum(x[b, j] for j in range(x.shape[1])) / x.shape[1]
        hidden = torch.clamp(module.fc1.weight @ mean + module.fc1.bias, min=0)
        gate = 1 / (1 + torch.exp(-(module.fc2.weight @ hidden + module.fc2.bias)))
        for i in range(x.shape[1]):
            out[b, i] = x[b, i] * gate
    return out


@given(shape=shapes, seed=st.integers(0, 99))
def test_squeeze_excite_is_its_equation(shape, seed):
    module = randomize(Excitation(shape[-1], 2)).double()
    x = tokens(shape, seed)
    assert_close(
        with_gradients(partial(module, site=SITE), x), with_gradients(lambda x: excitation_oracle(module, x), x)
    )


MODULES = {
    'scaled': (lambda dims: randomize(ScaledBroadcast(dims, 0.0)).double(), lambda m, x: cb_oracle(x, m.cb_scale)),
    'mean': (lambda dims: Broadcast('mean', first_token), lambda m, x: cb_oracle(x)),
    **{
        mode: (lambda dims, mode=mode: Broadcast(mode, first_token), lambda m, x: variant_oracle(m.mode, x, x[:, 0]))
        for mode in ('max', 'cls', 'gate', 'hybrid')
    },
    'hybrid without class token': (
        lambda dims: Broadcast('hybrid', token_mean),
        lambda m, x: variant_oracle('hybrid', x, x.mean(1)),
    ),
    'squeeze': (lambda dims: randomize(Excitation(dims, 2)).double(), lambda m, x: excitation_oracle(m, x)),
}


@given(shape=shapes, seed=st.integers(0, 99), case=st.sampled_from(list(MODULES)))
def test_padding_has_no_part_in_the_context(shape, seed, case):
    """Each image's valid tokens, wherever they lie, get what they would get without the others; gradients too."""
    x, valid = tokens(shape, seed), torch.rand(shape[:2], generator=torch.Generator().manual_seed(seed)) < 0.5
    valid[:, 0] = True  # the class token
    make, oracle = MODULES[case]
    module = make(shape[-1])

    def together(x):
        return module(x, replace(SITE, valid=valid))[valid]

    def alone(x):
        return torch.cat([oracle(module, x[b : b + 1, valid[b]])[0] for b in range(len(x))])

    assert_close(with_gradients(together, x), with_gradients(alone, x))
    spoilt = x.masked_fill(~valid.unsqueeze(-1), torch.nan)
    assert_close(together(spoilt), alone(x))
    everything = torch.ones_like(valid)
    assert_close(module(x, replace(SITE, valid=everything)), module(x, SITE))


def count(model):
    return sum(p.numel() for p in model.parameters())


def deit_small(**plug):
    model = VisionTransformer('deit-small', plugs=[plug] if plug else [])
    # The classifier of 1000 classes is not part of the backbone.
    return count(model) + 1000 * 384 + 1000


@pytest.mark.parametrize(
    ('plug', 'more'),
    [
        (dict(), 0),
        (dict(type='ContextBroadcast'), 0),
        (dict(type='ContextBroadcast', scaled=True), 12 * 384),
        (dict(type='SqueezeExcite'), 226_080),
        (dict(type='UniformHead', mode='replace'), -12 * (2 * 384 * 64 + 2 * 64)),
        (dict(type='UniformHead', mode='compensate'), -12 * (2 * 384 * 64 + 2 * 64) + 12 * (769 * 64)),
        (dict(type='UniformHead', mode='append'), 12 * (2 * 384 * 64 + 64)),
        (dict(type='UniformHead', mode='append', extra_head_dim=384), 12 * (2 * 384 * 384 + 384)),
    ],
    ids=str,
)
def test_parameters_of_deit_small(plug, more):
    assert deit_small(**plug) == COUNTS['DeiT-S'] + more


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_keeps_the_mean_and_halves_the_rest(shape, seed):
    x = tokens(shape, seed)
    mean = x.mean(1, keepdim=True)
    assert_close(CB(x) - mean, (x - mean) / 2)


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_is_its_own_backward(shape, seed):
    x, g = tokens(shape, seed).requires_grad_(), tokens(shape, seed + 1)
    (grad,) = torch.autograd.grad(CB(x), x, g)
    assert_close(grad, CB(g))


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_commutes_with_affine_maps(shape, seed):
    """So 'mlp_mid' equals 'mlp_end' where nothing random lies between."""
    x = tokens(shape, seed)
    layer = torch.nn.Linear(shape[-1], 3).double()
    assert_close(layer(CB(x)), CB(layer(x)))


@given(shape=shapes, seed=st.integers(0, 99))
def test_scale_of_one_is_twice_cb(shape, seed):
    x = tokens(shape, seed)
    assert_close(scaled(x, torch.ones(shape[-1], dtype=x.dtype)), 2 * CB(x))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_means_of_many_half_precision_tokens(dtype):
    x = torch.full((1, 70000, 2), 3.0, dtype=dtype)
    assert_close(CB(x), x)


def block_by_hand(block, x, position, scale):
    """A pre-norm ViT block with CB written out at one place."""

    def cb(where, tokens):
        return cb_oracle(tokens, scale) if where == position else tokens

    heads, (batch, n, dims) = block.attn.shape.map_heads, x.shape
    q, k, v = block.attn.qkv(block.ln1(x)).view(batch, n, 3, heads, dims // heads).permute(2, 0, 3, 1, 4)
    attended = ((q @ k.mT) * (dims // heads) ** -0.5).softmax(-1) @ v
    x = x + cb('msa', block.attn.proj(attended.transpose(1, 2).reshape(batch, n, dims)))
    (fc1, act, _), fc2, _ = block.ffn.layers
    hidden = cb('mlp_mid', act(fc1(cb('mlp_front', block.ln2(x)))))
    return x + cb('mlp_end', fc2(hidden))


@pytest.mark.parametrize('is_scaled', [False, True])
@pytest.mark.parametrize('position', ['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])
def test_positions_in_a_vit_block(position, is_scaled):
    model = vit(plugs=[dict(type='ContextBroadcast', position=position, scaled=is_scaled)])
    block = randomize(model).double().eval().layers[1]
    scale = block.plugs['cb'][position].cb_scale if is_scaled else None
    grid_tokens = tokens((2, 21, 24), 5)
    got, _ = block(grid_tokens, Site(GlobalLayout(4, 5, 1)), {})
    assert_close(got, block_by_hand(block, grid_tokens, position, scale))


@pytest.mark.parametrize('position', ['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])
def test_swin_broadcasts_over_the_whole_map(position):
    """A change in one corner reaches the opposite corner in the first block, through CB alone."""
    model = randomize(swin(plugs=[dict(type='ContextBroadcast', position=position)])).double().eval()
    plain = randomize(swin()).double().eval()
    x = tokens((1, 64, SWIN_ARCH['embed_dims']), 3)
    changed = x.clone()
    changed[:, 0] += tokens((SWIN_ARCH['embed_dims'],), 4)
    for host, reaches in ((model, True), (plain, False)):
        block, site = host.stages[0].blocks[0], Site(host.layout(0, (8, 8)))
        moved = (block(changed, site, {})[0] - block(x, site, {})[0])[:, -1].abs().sum()
        assert (moved > 1e-6) == reaches


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('position', ['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])
def test_zero_scale_is_the_plain_host_bit_for_bit(host, position):
    plain = randomize(HOSTS[host]()).eval()
    plugged = HOSTS[host](plugs=[dict(type='ContextBroadcast', scaled=True, position=position)]).eval()
    plugged.load_state_dict(plain.state_dict(), strict=False)
    x = images(37, 51, dtype=torch.float32)
    for expected, got in zip(plain(x), plugged(x), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize('mode', ['replace', 'append'])
def test_uniform_head_sees_all_tokens_alike(mode):
    block = randomize(vit(plugs=[dict(type='UniformHead', mode=mode)])).double().eval().layers[0]
    x = tokens((2, 21, 24), 5)
    heads = 2 if mode == 'replace' else 3
    weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
    q, k, v = (
        x @ w.T + b
        for w, b in zip(
            weight.split([heads * 8] * 2 + [heads * 8 + 8]), bias.split([heads * 8] * 2 + [heads * 8 + 8]), strict=True
        )
    )
    outs = []
    for h in range(heads + 1):
        own = slice(8 * h, 8 * h + 8)
        weights = torch.full((2, 21, 21), 1 / 21, dtype=x.dtype)
        if h < heads:
            weights = (q[..., own] @ k[..., own].mT / 8**0.5).softmax(-1)
        outs.append(weights @ v[..., own])
    got, _ = block.attn(x, Site(GlobalLayout(4, 5, 1)), block.plugs, {}, None)
    assert_close(got, block.attn.proj(torch.cat(outs, dim=-1)))


def test_uniform_head_stays_inside_the_regions_of_a_shifted_window():
    """A token that the mask keeps apart does not move the output."""
    model = randomize(swin(plugs=[dict(type='UniformHead')])).double().eval()
    block, site = model.stages[0].blocks[1], Site(model.layout(1, (8, 8)))
    x = tokens((1, 64, 12), 3)
    changed = x.clone()
    # Windows are shifted by 2: the last window holds rows 6, 7 beside rows 0, 1, which the mask keeps apart.
    changed[:, 0] += 1
    outs = [block.attn(t, site, block.plugs, {}, None)[0] for t in (x, changed)]
    moved = (outs[1] - outs[0]).abs().sum(-1).view(8, 8) > 1e-9
    assert moved[:2, :2].all() and moved.sum() == 4


def uniform_oracle(v, valid, regions):
    """Token by token: the mean of the valid values of its region, 0 where there is none."""
    out = torch.zeros_like(v)
    for b in range(len(v)):
        for i, region in enumerate(regions):
            seen = [v[b, j] for j, other in enumerate(regions) if other == region and valid[b, j]]
            out[b, i] = sum(seen) / len(seen) if seen else 0
    return out


@pytest.mark.parametrize('share', [0.1, 0.6])
@pytest.mark.parametrize('shift', [None, 0, 2])
def test_uniform_head_leaves_padding_out(shift, share):
    """Globally, and in windows that do not divide the map, regular and shifted."""
    layout = GlobalLayout(8, 7) if shift is None else WindowLayout(8, 7, 4, shift)
    generator = torch.Generator().manual_seed(0)
    valid = torch.rand(2, 56, generator=generator) < share
    places = [(y, x) for y in range(8) for x in range(7)]
    regions = [0] * 56
    if shift is not None:  # maps are padded to 8 x 8; what the roll brings to the other side stays apart
        regions = [((y - shift) % 8 // 4, (x - shift) % 8 // 4, y < shift, x < shift) for y, x in places]

    site = Site(layout, valid=valid).in_windows(valid.device)

    def attended(v):
        heads = layout.to_windows(v).unsqueeze(2)
        out, _ = attend(
            *(heads, heads, torch.cat((heads, heads), dim=2)),
            **dict(scale=1.0, site=site, plugs=LayerPlugs(), carry={}),
        )
        return layout.from_windows(out[:, :, 1])

    v = torch.randn(2, 56, 3, generator=generator, dtype=torch.float64)
    assert_close(with_gradients(attended, v), with_gradients(lambda v: uniform_oracle(v, valid, regions), v))


@pytest.mark.parametrize('host', ONE_GRID_HOSTS)
def test_parameters(host):
    plain = sum(p.numel() for p in HOSTS[host]().parameters())
    sizes = {}
    for position in ('mlp_mid', 'mlp_end'):
        model = HOSTS[host](plugs=[dict(type='ContextBroadcast', scaled=True, position=position)])
        sizes[position] = sum(p.numel() for p in model.parameters()) - plain
    widths = [block.attn.qkv.in_features if 'vit' in host else block.ffn.embed_dims for block in model.plugged_blocks()]
    assert sizes['mlp_end'] == sum(widths)
    assert sizes['mlp_mid'] == sum(block.ffn.feedforward_channels for block in model.plugged_blocks())
    unscaled = HOSTS[host](plugs=[dict(type='ContextBroadcast')])
    assert sum(p.numel() for p in unscaled.parameters()) == plain
