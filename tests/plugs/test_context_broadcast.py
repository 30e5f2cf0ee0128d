"""Context Broadcasting against its equations, token by token."""

import pytest
import torch
from cases import HOSTS, SWIN_ARCH, images, randomize, swin, vit
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.plugs.context_broadcast import Broadcast, ScaledBroadcast


def cb_oracle(x, scale=None):
    """Eq. (1): every token becomes the average of itself and the mean token; CB_S: x + Lambda * mean."""
    out = torch.zeros_like(x)
    batch, tokens, _ = x.shape
    for b in range(batch):
        mean = sum(x[b, j] for j in range(tokens)) / tokens
        for i in range(tokens):
            out[b, i] = x[b, i] / 2 + mean / 2 if scale is None else x[b, i] + scale * mean
    return out


def with_gradients(function, *inputs):
    """The output and the gradients of a scalar that weighs every output element differently."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    out = function(*inputs)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad((out * weights).sum(), inputs)


def scaled(x, scale):
    module = ScaledBroadcast(scale.numel(), 0.0).double()
    return torch.func.functional_call(module, {'cb_scale': scale}, (x,))


shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5))


def tokens(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_is_the_equation(shape, seed):
    x = tokens(shape, seed)
    assert_close(with_gradients(Broadcast(), x), with_gradients(cb_oracle, x))


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_s_is_the_equation(shape, seed):
    x, scale = tokens(shape, seed), tokens(shape[-1:], seed + 1)
    assert_close(with_gradients(scaled, x, scale), with_gradients(cb_oracle, x, scale))


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_keeps_the_mean_and_halves_the_rest(shape, seed):
    x = tokens(shape, seed)
    mean = x.mean(1, keepdim=True)
    assert_close(Broadcast()(x) - mean, (x - mean) / 2)


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_is_its_own_backward(shape, seed):
    x, g = tokens(shape, seed).requires_grad_(), tokens(shape, seed + 1)
    (grad,) = torch.autograd.grad(Broadcast()(x), x, g)
    assert_close(grad, Broadcast()(g))


@given(shape=shapes, seed=st.integers(0, 99))
def test_cb_commutes_with_affine_maps(shape, seed):
    """So 'mlp_mid' equals 'mlp_end' where nothing random lies between."""
    x = tokens(shape, seed)
    layer = torch.nn.Linear(shape[-1], 3).double()
    assert_close(layer(Broadcast()(x)), Broadcast()(layer(x)))


@given(shape=shapes, seed=st.integers(0, 99))
def test_scale_of_one_is_twice_cb(shape, seed):
    x = tokens(shape, seed)
    assert_close(scaled(x, torch.ones(shape[-1], dtype=x.dtype)), 2 * Broadcast()(x))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_means_of_many_half_precision_tokens(dtype):
    x = torch.full((1, 70000, 2), 3.0, dtype=dtype)
    assert_close(Broadcast()(x), x)


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
    got, _ = block(grid_tokens, None, {})
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
        block = host.stages[0].blocks[0]
        moved = (block(changed, (8, 8), {})[0] - block(x, (8, 8), {})[0])[:, -1].abs().sum()
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


@pytest.mark.parametrize('host', HOSTS)
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
