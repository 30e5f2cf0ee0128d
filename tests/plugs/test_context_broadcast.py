"""Context Broadcasting against its equations, token by token."""

from functools import partial

import pytest
import torch
from attention_oracle import assert_same
from cases import randomize, swin, vit
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, WindowLayout, attend
from vitplug.compat import replace
from vitplug.plugs import LayerPlugs
from vitplug.plugs.context_broadcast import Broadcast, Excitation, ScaledBroadcast, first_token, token_mean


def oracle(module, x):
    """One image's tokens ``(N, D)``, token by token; eq. (1) is mode 'mean', CB_S adds Lambda times the mean."""
    mean = sum(x) / len(x)
    if isinstance(module, ScaledBroadcast):
        return torch.stack([token + module.cb_scale * mean for token in x])
    if isinstance(module, Excitation):
        hidden = torch.clamp(module.fc1.weight @ mean + module.fc1.bias, min=0)
        gate = 1 / (1 + torch.exp(-(module.fc2.weight @ hidden + module.fc2.bias)))
        return torch.stack([token * gate for token in x])
    x0 = mean if module.class_token is token_mean else x[0]
    rule = {
        'mean': lambda token: token / 2 + mean / 2,
        'max': lambda token: token / 2 + x.max(dim=0).values / 2,
        'cls': lambda token: token / 2 + x0 / 2,
        'gate': lambda token: token * (x0 + 1),
        'hybrid': lambda token: token * x0 + token / 2 + mean / 2,
    }[module.mode]
    return torch.stack([rule(token) for token in x])


# Token sockets ask the site for the valid tokens alone.
SITE = Site(GlobalLayout(1, 1))
MODES = ('mean', 'max', 'cls', 'gate', 'hybrid')
MODULES = {
    'scaled': lambda dims: ScaledBroadcast(dims, cb_scale=0.0),
    'squeeze': lambda dims: Excitation(dims, 2),
    'hybrid without class token': lambda dims: Broadcast('hybrid', token_mean),
    **{mode: partial(lambda dims, mode: Broadcast(mode, first_token), mode=mode) for mode in MODES},
}


def tokens(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5)),
    seed=st.integers(0, 99),
    case=st.sampled_from(list(MODULES)),
    is_padded=st.booleans(),
)
def test_modules_are_their_equations(shape, seed, case, is_padded):
    """Each image's valid tokens, wherever they lie, get what they would get without the others; gradients too."""
    x, valid = tokens(shape, seed).requires_grad_(), torch.ones(shape[:2], dtype=torch.bool)
    if is_padded:
        valid = torch.rand(shape[:2], generator=torch.Generator().manual_seed(seed)) < 0.5
        valid[:, 0] = True  # the class token
    module = randomize(MODULES[case](shape[-1])).double()
    site = replace(SITE, valid=valid) if is_padded else SITE
    expected = torch.cat([oracle(module, image[own]) for image, own in zip(x, valid, strict=True)])
    assert_same([module(x, site)[valid]], [expected], [x, *module.parameters()])
    spoilt = x.masked_fill(~valid.unsqueeze(-1), torch.nan)
    assert_close(module(spoilt, site)[valid], expected)


@pytest.mark.parametrize('mode', ['cls', 'gate', 'hybrid'])
def test_class_token_modes_may_fall_back_on_the_mean(mode):
    for host in (swin, partial(vit, with_cls_token=False)):
        model = host(plugs=[dict(type='ContextBroadcast', mode=mode, cls_fallback='mean')])
        module, x = model.plugged_blocks()[0].plugs['cb']['mlp_end'], tokens((1, 6, 3), 0)
        assert_close(module(x, SITE)[0], oracle(Broadcast(mode, token_mean), x[0]))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_means_of_many_half_precision_tokens(dtype):
    x = torch.full((1, 70000, 2), 3.0, dtype=dtype)
    assert_close(Broadcast('mean', first_token)(x, SITE), x)


def block_by_hand(block, x, position):
    """A pre-norm ViT block of one image with CB written out at one place."""

    def cb(where, x):
        return oracle(block.plugs['cb'][position], x) if where == position else x

    q, k, v = block.attn.qkv(block.ln1(x)).unflatten(-1, (3, 3, 8)).permute(1, 2, 0, 3)
    attended = (q @ k.mT / 8**0.5).softmax(-1) @ v
    x = x + cb('msa', block.attn.proj(attended.transpose(0, 1).flatten(1)))
    (fc1, act, _), fc2, _ = block.ffn.layers
    return x + cb('mlp_end', fc2(cb('mlp_mid', act(fc1(cb('mlp_front', block.ln2(x)))))))


@pytest.mark.parametrize('is_scaled', [False, True])
@pytest.mark.parametrize('position', ['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])
def test_positions_in_a_vit_block(position, is_scaled):
    model = vit(plugs=[dict(type='ContextBroadcast', position=position, scaled=is_scaled)])
    block = randomize(model).double().eval().layers[1]
    x = tokens((2, 21, 24), 5)
    got, _ = block(x, Site(GlobalLayout(4, 5, 1)), {})
    assert_close(got, torch.stack([block_by_hand(block, image, position) for image in x]))


@pytest.mark.parametrize('mode', ['replace', 'append'])
def test_uniform_head_sees_all_tokens_alike(mode):
    block = randomize(vit(plugs=[dict(type='UniformHead', mode=mode)])).double().eval().layers[0]
    x = tokens((2, 21, 24), 5)
    heads = 2 if mode == 'replace' else 3
    q, k, v = (t.unflatten(-1, (-1, 8)) for t in block.attn.qkv(x).split([heads * 8, heads * 8, heads * 8 + 8], -1))
    maps = torch.cat((torch.einsum('bihd,bjhd->bhij', q, k) / 8**0.5, torch.zeros(2, 1, 21, 21)), dim=1).softmax(-1)
    expected = block.attn.proj(torch.einsum('bhij,bjhd->bihd', maps, v).flatten(2))
    got, _ = block.attn(x, Site(GlobalLayout(4, 5, 1)), block.plugs, {}, None)
    assert_close(got, expected)


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
        call = dict(scale=1.0, site=site, plugs=LayerPlugs(), carry={})
        out, _ = attend(heads, heads, torch.cat((heads, heads), dim=2), **call)
        return layout.from_windows(out[:, :, 1])

    v = torch.randn(2, 56, 3, generator=generator, dtype=torch.float64).requires_grad_()
    assert_same([attended(v)], [uniform_oracle(v, valid, regions)], [v])
