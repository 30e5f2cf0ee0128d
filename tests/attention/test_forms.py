"""The forms of attention against their equations: values and gradients, for a CPU and for a GPU."""

from functools import partial

import attention_oracle as oracles
import pytest
import torch
import torch.nn.functional as F
from attention_oracle import assert_same
from cases import PLUGS, images, randomize, swin, vit
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import Attention, GridPair, OffsetBias, TokenGrid, fused, fused_attention, rows, tuning

DEVICES = pytest.mark.parametrize('device', ['cpu', 'cuda'])
grids = st.builds(TokenGrid, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@st.composite
def attentions(draw):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    images, windows, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    queries = draw(grids)
    pairs = GridPair(queries, queries if draw(st.booleans()) else draw(grids))
    nq, nk, d, e = queries.num_tokens, pairs.keys.num_tokens, draw(st.integers(1, 12)), draw(st.integers(1, 4))
    bias_heads = draw(st.sampled_from([None, 1, heads]))
    biases = () if bias_heads is None else (OffsetBias(leaf(bias_heads, *pairs.table_size), pairs),)
    lead = (images * windows, heads)
    return Attention(leaf(*lead, nq, d), leaf(*lead, nk, d), leaf(*lead, nk, e), 0.7, windows, biases), leaf


def inputs(a):
    """Everything a gradient is compared of."""
    return [a.q, a.k, a.v, *(bias.table for bias in a.biases)]


def equation(a, mask=0.0):
    q, k, v = (a.by_window(t) for t in (a.q, a.k, a.v))
    bias = sum(oracles.offset_bias(b.table, b.pairs.queries, b.pairs.keys) for b in a.biases)
    return (oracles.probs(oracles.scores(q, k, a.scale) + bias + mask) @ v).flatten(0, 1)


@DEVICES
@given(attentions(), st.data())
def test_masks_of_images_windows_heads_and_queries(device, drawn, data):
    a, leaf = drawn
    shape = [n if data.draw(st.booleans()) else 1 for n in a.by_window(a.q).shape[:4]]
    masked = a._replace(mask=leaf(*shape, a.num_keys)) if data.draw(st.booleans()) else a
    wide = masked.mask is not None and masked._replace(mask=F.pad(masked.mask, (0, -a.num_keys % tuning.BIAS_STEP)))
    with tuning.tuned_for(device):
        got = fused(wide or masked)
    mask = 0.0 if masked.mask is None else masked.mask
    assert_same([got], [equation(a, mask)], [*inputs(a), masked.mask])


@pytest.mark.parametrize('host', [vit, partial(vit, with_cls_token=False), partial(swin, window_size=3)])
@torch.no_grad()
def test_a_gpus_call_takes_biases_without_a_copy(host, monkeypatch):
    """torch copies a bias unless the last axis is dense and the strides of the others are multiples of 8."""
    call, biases = F.scaled_dot_product_attention, []

    def spy(*args, attn_mask, **kwargs):
        biases.append(attn_mask)
        return call(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(F, 'scaled_dot_product_attention', spy)
    for plugs in ([dict(type='RelPosBias')], [dict(type='GaussianAttentionBias')]):
        with tuning.tuned_for('cuda'):
            host(plugs=plugs)(images(40, 56, dtype=torch.float32))
    assert any(bias.shape[-1] % 8 for bias in biases)
    assert all(bias.stride(-1) == 1 and not any(stride % 8 for stride in bias.stride()[:-1]) for bias in biases)


@pytest.mark.parametrize('host', [vit, swin])
def test_a_bias_that_is_trained_alone_is_kept_off_a_gpus_kernel(host, monkeypatch):
    """Its backward pass needs what the forward pass leaves out if q, k and v need no gradient."""
    call, trained = F.scaled_dot_product_attention, []

    def spy(q, k, v, attn_mask, **kwargs):
        trained.append((attn_mask.requires_grad, any(t.requires_grad for t in (q, k, v))))
        return call(q, k, v, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(F, 'scaled_dot_product_attention', spy)
    model, x = randomize(host(plugs=[dict(type='RelPosBias')])).double(), images(40, 56)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = 'rel_pos_table' in name
    tables = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradients():
        return torch.autograd.grad(sum(out.square().sum() for out in model(x)), tables)

    with tuning.tuned_for('cuda'):
        got = gradients()
    assert trained == [(True, True)] * (len(tables) - 1)  # all blocks but the first
    with fused_attention(False):
        assert_close(got, gradients())


def step(model, x):
    outs = model(x)
    weights = [torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) for out in outs]
    sum((out.square() * weight).sum() for out, weight in zip(outs, weights, strict=True)).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return *outs, grads


@pytest.mark.parametrize('plugs', ['gab', 'gab-per-head-relative', 'refiner', 'refiner-rowcol', 'dla', 'residual'])
def test_rows_at_a_time_are_twins_of_all(plugs, monkeypatch):
    monkeypatch.setattr(rows, 'PAIRS_FROM', 1)
    monkeypatch.setattr(rows, 'ROWS', 7)
    model, x = randomize(vit(plugs=PLUGS[plugs])).double(), images(40, 56)
    fast = step(model, x)
    with fused_attention(False):
        assert_close(fast, step(model, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('host', [vit, swin])
@pytest.mark.parametrize('plugs', PLUGS)
def test_models_in_the_forms_of_a_gpu_are_twins_of_plain_ones(plugs, host):
    """The contract compares those of a CPU."""
    model, x = randomize(host(plugs=PLUGS[plugs])).double().eval(), images(40, 56)
    with tuning.tuned_for('cuda'):
        fast = step(model, x)
    with fused_attention(False):
        assert_close(fast, step(model, x), rtol=1e-9, atol=1e-9)
