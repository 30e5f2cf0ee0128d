"""The fast forms against their equations: values and gradients, at sizes that cut tiles everywhere."""

from dataclasses import replace
from functools import partial

import attention_oracle as oracles
import pytest
import torch
import torch.nn.functional as F
from attention_oracle import assert_same, gradients
from cases import PLUGS, images, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import Attention, GridPair, OffsetBias, TokenGrid, fused_attention, tuning
from vitplug.attention.fused import call_fused, form_maps, fused
from vitplug.attention.tiles import attend_by_tiles, pad_keys
from vitplug.plugs.refiner.tiles import attend_to_convolved
from vitplug.plugs.residual_attention.tiles import attend_to_blend


@pytest.fixture
def by_tiles(monkeypatch):
    """Every attention that can go by tiles does, in tiles of a few rows."""
    monkeypatch.setattr(Attention, 'goes_by_tiles', lambda a, tokens: a.mask is None and not a.dropout_p)
    monkeypatch.setattr(tuning, 'TILE', 50)
    monkeypatch.setattr(tuning, 'BIAS_OF_CALL', 50)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 2)


grids = st.builds(TokenGrid, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@st.composite
def attentions(draw, windows=st.integers(1, 2)):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    lead = (draw(st.integers(1, 2)), draw(windows), draw(st.integers(1, 3)))
    queries = draw(grids)
    pairs = GridPair(queries, queries if draw(st.booleans()) else draw(grids))
    nq, nk, d, e = queries.num_tokens, pairs.keys.num_tokens, draw(st.integers(1, 4)), draw(st.integers(1, 4))
    bias_heads = draw(st.sampled_from([None, 1, lead[2]]))
    table_size = [q + k - 1 for q, k in zip(queries.hw, pairs.keys.hw, strict=True)]
    biases = () if bias_heads is None else (OffsetBias(leaf(bias_heads, *table_size), pairs),)
    tuning.TILE, tuning.BIAS_OF_CALL = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    # As many heads go together as there are threads. Really starting some would make later tests hang that fork.
    threads = draw(st.integers(1, 2))
    torch.get_num_threads = lambda: threads
    return Attention(leaf(*lead, nq, d), leaf(*lead, nk, d), leaf(*lead, nk, e), 0.7, biases), leaf


def logits(a, scores):
    return scores + sum(oracles.offset_bias(b.table, b.pairs.queries, b.pairs.keys) for b in a.biases)


def inputs(a):
    """Everything a gradient is compared of."""
    return [a.q, a.k, a.v, *(bias.table for bias in a.biases)]


def scores(a):
    return oracles.scores(a.q, a.k, a.scale)


def equation(a, mask=0.0):
    return oracles.probs(logits(a, scores(a)) + mask) @ a.v


@given(attentions())
def test_by_tiles(drawn):
    a, _ = drawn
    assert_same([attend_by_tiles(a)], [equation(a)], inputs(a))


FORMS = {form.__name__: form for form in (form_maps, attend_by_tiles, call_fused, fused)}
FORMS['attend_to_blend'] = lambda a: attend_to_blend(a, None, None)[0]
FORMS['attend_to_convolved'] = lambda a: attend_to_convolved(a, torch.eye(a.q.shape[2]).double()[..., None, None])


@pytest.mark.parametrize('form', FORMS)
@given(attentions(windows=st.just(1)), st.integers(1, 20))
@settings(max_examples=20)
def test_padded_keys_get_no_attention(form, drawn, surplus):
    """Exactly none: enormous values of theirs change nothing."""
    a, leaf = drawn
    more_k, more_v = (leaf(*t.shape[:3], surplus, t.shape[4]) for t in (a.k, a.v))
    padded = replace(
        a, k=torch.cat((a.k, 1e3 * more_k), -2), v=torch.cat((a.v, 1e200 * more_v), -2), num_padded=surplus
    )
    assert padded.num_keys == a.k.shape[-2]
    got = FORMS[form](padded)
    assert_same([got], [equation(a)], inputs(a))
    grads = torch.autograd.grad(got.sum(), (more_k, more_v), allow_unused=True, materialize_grads=True)
    assert not any(grad.any() for grad in grads)


@given(attentions())
def test_rows_of_padded_maps_begin_with_a_cache_line(drawn):
    a = drawn[0]
    padded = pad_keys(a)
    assert padded.num_keys == a.num_keys and padded.k.shape[-2] % tuning.CACHE_LINE == 0
    with tuning.tuned_for('cuda'):
        assert pad_keys(a) is a


@pytest.mark.parametrize('dims', [(3, 3), (6, 3), (3, 6)], ids=['even', 'wide', 'narrow'])
@pytest.mark.parametrize('bias', [None, 1, 2])
@pytest.mark.parametrize('side', [3, 23])
def test_whichever_form_serves(dims, bias, side):
    generator, grid = torch.Generator().manual_seed(0), TokenGrid(side, side, 1)
    pairs = GridPair(grid, grid)

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    q, k, v = (leaf(1, 1, 2, grid.num_tokens, d) for d in (dims[0], dims[0], dims[1]))
    a = Attention(q, k, v, 0.7, (OffsetBias(leaf(bias, *pairs.table_size), pairs),) if bias else ())
    assert_same([fused(a)], [equation(a)], inputs(a))


@given(attentions(), st.data())
def test_masks_of_images_windows_heads_and_queries(drawn, data):
    """As heads all at once, and with maps formed."""
    a, leaf = drawn
    shape = [n if data.draw(st.booleans()) else 1 for n in a.q.shape[:4]]
    masked = replace(a, mask=leaf(*shape, a.num_keys))
    with tuning.tuned_for('cuda'):
        on_a_gpu = call_fused(masked)
    for got in (call_fused(masked), form_maps(masked), on_a_gpu):
        assert_same([got], [equation(a, masked.mask)], [*inputs(a), masked.mask])


@pytest.mark.parametrize('host', [vit, partial(vit, with_cls_token=False), partial(swin, window_size=3)])
@torch.no_grad()
def test_a_gpus_call_takes_biases_without_a_copy(host, monkeypatch):
    """torch copies a bias unless the last axis is dense and the strides of the others are multiples of 8."""
    call, biases = F.scaled_dot_product_attention, []

    def spy(*args, attn_mask, **kwargs):
        biases.append(attn_mask)
        return call(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(F, 'scaled_dot_product_attention', spy)
    model = host(plugs=[dict(type='RelPosBias')])
    with tuning.tuned_for('cuda'):
        model(images(40, 56, dtype=torch.float32))
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

    with tuning.tuned_for('cuda'):
        got = gradients(model(x), tables)
    assert trained == [(True, True)] * (len(tables) - 1)  # all blocks but the first
    with fused_attention(False):
        assert_close(got, gradients(model(x), tables))


@given(attentions(), st.booleans())
def test_blended(drawn, is_first):
    a, leaf = drawn
    shape = (*a.q.shape[:-1], a.k.shape[-2])
    before, alpha = (None, None) if is_first else (leaf(*shape), torch.tensor([0.3], requires_grad=True))
    blended = scores(a) if is_first else alpha.double() * scores(a) + (1 - alpha.double()) * before
    expected = [oracles.probs(logits(a, blended)) @ a.v, blended]
    assert_same(list(attend_to_blend(a, before, alpha)), expected, [*inputs(a), before, alpha])


@given(attentions(windows=st.just(1)), st.sampled_from([1, 3, 5]), st.booleans())
def test_convolved(drawn, side, is_depthwise):
    a, leaf = drawn
    heads = a.q.shape[2]
    kernel = leaf(heads, 1 if is_depthwise else heads, side, side)
    maps = oracles.convolved(oracles.probs(logits(a, scores(a))), kernel)
    assert_same([attend_to_convolved(a, kernel)], [maps @ a.v], [*inputs(a), kernel])


def test_gradient_of_one_output_alone():
    """The last block's scores go nowhere, and scores may be used where the output is not."""
    q, k, v = (torch.randn(1, 1, 2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    before = torch.randn(1, 1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    a = Attention(q, k, v, 0.5)
    blended = alpha * scores(a) + (1 - alpha) * before
    expected = (blended.softmax(-1) @ v, blended)
    for index in (0, 1):
        leaves = (q, k, before, alpha)
        got = torch.autograd.grad(attend_to_blend(a, before, alpha)[index].square().sum(), leaves)
        assert_close(got, torch.autograd.grad(expected[index].square().sum(), leaves, retain_graph=True))


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding(dtype):
    """Other precisions differ from float64 by their own rounding."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 2, 40, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    kernel, before = torch.randn(2, 2, 3, 3, dtype=torch.float64), torch.randn(1, 1, 2, 40, 40, dtype=torch.float64)
    alpha = torch.tensor([0.6])

    def run(to):
        a = Attention(q.to(to).requires_grad_(), k.to(to).requires_grad_(), v.to(to).requires_grad_(), 0.3)
        handed = before.to(to).requires_grad_()
        outs = (attend_by_tiles(a), *attend_to_blend(a, handed, alpha), attend_to_convolved(a, kernel.float()))
        grads = torch.autograd.grad(sum(out.double().square().sum() for out in outs), (a.q, a.k, a.v, handed))
        assert all(t.dtype == to for t in (*outs, *grads))
        return [t.double() for t in (*outs, *grads)]

    for got, expected in zip(run(dtype), run(torch.float64), strict=True):
        assert (got - expected).abs().mean() / expected.abs().mean() < 8 * torch.finfo(dtype).eps


def step(model, x):
    outs = model(x)
    return outs, gradients(outs, list(model.parameters()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize('plugs', PLUGS)
def test_models_by_tiles_are_twins_of_plain_ones(plugs, by_tiles):
    model, x = randomize(vit(plugs=PLUGS[plugs])).double().eval(), images(40, 56)
    fast = step(model, x)
    with fused_attention(False):
        assert_close(fast, step(model, x), rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize('host', [vit, swin])
@pytest.mark.parametrize('plugs', PLUGS)
def test_forms_for_a_gpu_are_twins_of_plain_ones(plugs, host, by_tiles, monkeypatch):
    monkeypatch.setattr(tuning, 'TILE_ELSEWHERE', 200)
    model, x = randomize(host(plugs=PLUGS[plugs])).double().eval(), images(40, 56)
    with tuning.tuned_for('cuda'):
        assert not tuning.on_cpu(x.device)
        fast = step(model, x)
    assert tuning.on_cpu(x.device)
    with fused_attention(False):
        assert_close(fast, step(model, x), rtol=1e-9, atol=1e-9)


LEAN = {name: PLUGS[name] for name in ('none', 'cb', 'gab', 'residual-low-memory', 'broad')}
LEAN |= {name: PLUGS[name] for name in ('dla', 'dla-spatial', 'refiner', 'refiner-rowcol')}


@pytest.mark.parametrize('plugs', LEAN)
def test_no_maps_are_kept_for_backward(plugs, by_tiles):
    model, x = randomize(vit(plugs=LEAN[plugs])), images(104, 104, batch=1, dtype=torch.float32)
    maps = 3 * (13 * 13 + 1) ** 2
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        model(x)
    assert max(kept) < maps
    kept.clear()
    with (
        fused_attention(False),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t),
    ):
        model(x)
    assert max(kept) >= maps


def test_fast_forms_under_autocast(by_tiles):
    plugs = [dict(type='ResidualAttention'), dict(type='GaussianAttentionBias')]
    for chosen in (plugs, [dict(type='Refiner')], [dict(type='Refiner', expansion=0)]):
        model, x = randomize(vit(plugs=chosen)), images(40, 56, dtype=torch.float32)
        exact = model(x)[0]
        with torch.autocast('cpu', torch.bfloat16):
            (out,) = model(x)
        out.float().sum().backward()
        assert (out - exact).abs().mean() / exact.abs().mean() < 16 * torch.finfo(torch.bfloat16).eps
        assert all(p.grad.isfinite().all() for p in model.parameters())
