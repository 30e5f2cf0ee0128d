"""FlexAttention against the equation. Its kernel for GPUs is traced, not run; on a CPU torch forms the scores."""

from dataclasses import replace
from unittest.mock import patch

import attention_oracle as oracles
import pytest
import torch
from attention_oracle import assert_same
from cases import images, randomize, vit
from fake_gpu import on_fake_gpu
from torch.testing import assert_close

from vitplug.attention import Attention, GridPair, OffsetBias, QueryBias, TokenGrid, flex, tuning
from vitplug.attention.fused import fused

pytestmark = pytest.mark.skipif(not flex.HAS_FLEX, reason='this torch has no flex_attention with a choice of BACKEND')


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    monkeypatch.setattr(tuning, 'FLEX_FROM', 2)


def attention(bias_heads: int, prefix: int, keys: TokenGrid | None = None, dtype=torch.float32) -> Attention:
    generator = torch.Generator().manual_seed(0)
    queries = TokenGrid(3, 2, prefix)
    pairs = GridPair(queries, keys or queries)
    q, k, v = (
        torch.randn(2, 2, 3, grid.num_tokens, 4, generator=generator, dtype=dtype)
        for grid in (queries, pairs.keys, pairs.keys)
    )
    table = torch.randn(bias_heads, *pairs.table_size, generator=generator, dtype=dtype)
    return Attention(q, k, v, 0.7, (OffsetBias(table, pairs),))


def equation(a: Attention) -> torch.Tensor:
    (bias,) = a.biases
    logits = oracles.scores(a.q, a.k, a.scale)
    return oracles.probs(logits + oracles.offset_bias(bias.table, bias.pairs.queries, bias.pairs.keys)) @ a.v


CASES = {
    'one table': (1, 0, None),
    'by head': (3, 0, None),
    'class token': (3, 1, None),
    'pooled keys': (3, 2, TokenGrid(2, 3, 1)),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
@torch.no_grad()
def test_forward_is_the_equation(case):
    a = attention(*case)
    with patch.object(flex, 'flex_attention', wraps=flex.flex_attention) as kernel:
        assert_close(fused(a), equation(a))
    assert kernel.call_args.kwargs['kernel_options'] == {'BACKEND': 'TRITON'}


def test_gradients_are_those_of_the_equation(monkeypatch):
    """The backward pass that torch traces for a GPU; its kernel for a CPU does not exist."""
    monkeypatch.setattr('torch.nn.attention.flex_attention._validate_device', lambda *_: None)
    monkeypatch.setattr(flex, '_refuse_if', lambda *_: None)
    a = attention(*CASES['pooled keys'], dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (a.q, a.k, a.v, a.biases[0].table)]
    assert_same([fused(a)], [equation(a)], leaves)


def test_a_model_is_its_twin():
    model = randomize(vit(plugs=[dict(type='RelPosBias'), dict(type='GaussianAttentionBias')])).eval()
    x = images(40, 56, dtype=torch.float32)
    with torch.no_grad():
        (out,) = model(x)
        tuning.FLEX_FROM = None
        assert_close(out, model(x)[0])


@torch.no_grad()
def test_it_traces_on_a_gpu_and_writes_no_bias_of_all_pairs():
    with torch.device('meta'):
        model = vit(plugs=[dict(type='RelPosBias')])
    with on_fake_gpu(), torch.autocast('cuda', torch.bfloat16), patch.object(OffsetBias, 'expand') as expand:
        (out,) = model.to_empty(device='cuda')(torch.empty(1, 3, 40, 56))
    assert (out.shape, out.device.type, expand.call_count) == ((1, 24, 5, 7), 'cuda', 0)


def test_short_attention_and_attention_without_bias_are_left_alone(monkeypatch):
    a = attention(*CASES['by head'])
    monkeypatch.setattr(flex, 'flex_attention', None)
    tuning.FLEX_FROM = 7
    fused(a)
    tuning.FLEX_FROM = 6
    fused(replace(a, biases=()))
    with pytest.raises(TypeError):
        fused(a)


A = attention(*CASES['by head'])
BY_QUERY = QueryBias(torch.zeros(2, 2, 3, 6, 3), torch.zeros(2, 2, 3, 6, 2), A.biases[0].pairs)
REFUSED = {
    'no dropout of the maps': replace(A, dropout_p=0.1),
    'masks': replace(A, mask=torch.zeros(1, 1, 1, 6, 6)),
    'bias by query': replace(A, biases=(*A.biases, BY_QUERY)),
    'no backward pass on a CPU': replace(A, q=A.q.clone().requires_grad_()),
}


@pytest.mark.parametrize('reason', REFUSED)
def test_what_it_cannot_compute_is_refused(reason):
    with pytest.raises(ValueError, match=rf'VITPLUG_FLEX_FROM=2: .*{reason}.*Unset'):
        fused(REFUSED[reason])


def test_the_variable_is_a_number_of_tokens(monkeypatch):
    monkeypatch.setenv('VITPLUG_FLEX_FROM', '1024')
    assert tuning.read_tokens('VITPLUG_FLEX_FROM') == 1024
    for wrong in ('0', '1k', '-5', ''):
        monkeypatch.setenv('VITPLUG_FLEX_FROM', wrong)
        with pytest.raises(ValueError, match=f"VITPLUG_FLEX_FROM='{wrong}': .* from 1 on"):
            tuning.read_tokens('VITPLUG_FLEX_FROM')


@pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_the_kernel_of_a_gpu_is_the_equation(case):
    """Values and gradients; the kernel takes heads of 16 channels or more."""
    exact = attention(*case, dtype=torch.float64)
    exact = replace(exact, **{name: getattr(exact, name).repeat(1, 1, 1, 1, 4) / 2 for name in 'qkv'})
    (bias,) = exact.biases
    leaves = [t.requires_grad_() for t in (exact.q, exact.k, exact.v, bias.table)]
    table, *qkv = (t.detach().to('cuda', torch.float32).requires_grad_() for t in (bias.table, *leaves[:3]))
    on_gpu = replace(exact, **dict(zip('qkv', qkv, strict=True)), biases=(replace(bias, table=table),))
    outs = [
        a.double().cpu() for a in (fused(on_gpu), *torch.autograd.grad(fused(on_gpu).square().sum(), [*qkv, table]))
    ]
    expected = equation(exact)
    expected = [expected, *torch.autograd.grad(expected.square().sum(), leaves)]
    for got, wanted in zip(outs, expected, strict=True):
        assert (got - wanted).norm() < 5e-3 * wanted.norm()  # TF32
