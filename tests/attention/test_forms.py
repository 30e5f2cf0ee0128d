"""The forms of attention for a GPU, and parts at a time for a CPU; `test_queries_and_keys.py` has the equations."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from attention_oracle import gradients
from cases import PLUGS, images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.attention import DenseBias, cpu, fused_attention, tuning
from vitplug.hosting import SelfAttention


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

    def of_tables():
        return torch.autograd.grad(sum(out.square().sum() for out in model(x)), tables)

    with tuning.tuned_for('cuda'):
        got = of_tables()
    assert trained == [(True, True)] * (len(tables) - 1)  # all blocks but the first
    with fused_attention(False):
        assert_close(got, of_tables())


def step(model, x):
    outs = model(x)
    return *outs, gradients(outs, [*model.parameters()])


@pytest.mark.parametrize(
    'plugs',
    [
        *('gab', 'gab-per-head-relative', 'refiner', 'refiner-rowcol', 'dla'),
        *('residual', 'residual-reset', 'residual-low-memory', 'broad'),
    ],
)
def test_parts_at_a_time_are_twins_of_all(plugs, monkeypatch):
    monkeypatch.setattr(cpu, 'PAIRS_FROM', 1)
    monkeypatch.setattr(cpu, 'ROWS', 7)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 2)  # parts of two of three heads, and of one
    entered = []
    for name in ('_parts', 'ceil_div'):  # of heads, and of rows
        monkeypatch.setattr(cpu, name, lambda *args, own=getattr(cpu, name): entered.append(1) or own(*args))
    model, x = randomize(vit(plugs=PLUGS[plugs])).double(), images(40, 56)
    fast = step(model, x)
    assert entered
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


def test_a_bias_of_pairs_alone_serves_all_images_and_heads(monkeypatch):
    model, x = randomize(vit()).double().eval(), images(40, 56, batch=2)
    bias = DenseBias(torch.linspace(-1, 1, 36**2, dtype=torch.float64).view(36, 36))
    monkeypatch.setattr(SelfAttention, 'biases', lambda self, site: (bias,))
    fast = model(x)
    with fused_attention(False):
        assert_close(fast, model(x))
