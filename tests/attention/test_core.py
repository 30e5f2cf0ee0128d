"""Attention against its equation, loop by loop, with and without windows, bias and mask."""

import itertools
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import DenseBias, GlobalLayout, LayerRecord, Site, WindowLayout, attend, cpu, fused_attention
from vitplug.attention.layouts import MASKED
from vitplug.plugs import LayerPlugs


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_probabilities_of_half_precision_scores_are_not_rounded(dtype):
    q = torch.randn(1, 1, 1, 50, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    record = LayerRecord(frozenset(['probs', 'logits']))
    attend(q, q, q, scale=1.0, site=Site(GlobalLayout(5, 10)), plugs=LayerPlugs(), carry={}, record=record)
    expected = record.kept['logits'].double().softmax(-1)
    assert_close(record.kept['probs'].double(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('bias', ['none', 'fixed', 'learned'])
@pytest.mark.parametrize('fused', [True, False])
def test_attention_dropout_drops_probabilities(fused, bias, monkeypatch):
    """Half of them, and doubles the others; the values are one-hot, so that the outputs are the maps."""
    monkeypatch.setattr(cpu, 'PAIRS_FROM', 1)
    torch.manual_seed(0)
    q, v = torch.randn(1, 1, 2, 64, 8), torch.eye(64).expand(1, 1, 2, 64, 64)
    biases = () if bias == 'none' else (DenseBias(torch.randn(64, 64, requires_grad=bias == 'learned')),)
    call = dict(scale=1.0, site=Site(GlobalLayout(8, 8)), plugs=LayerPlugs(), carry={}, biases=biases)
    with fused_attention(fused):
        kept, dropped = (attend(q, q, v, dropout_p=p, **call)[0] for p in (0.0, 0.5))
    assert 0.4 < (dropped == 0).double().mean() < 0.6
    assert_close(dropped, (2 * kept).where(dropped != 0, 0.0))


sides = st.integers(1, 13)


@given(
    height=sides,
    width=sides,
    window=st.integers(1, 5),
    shift=st.integers(0, 4),
    padded=st.booleans(),
    always=st.booleans(),
    seed=st.integers(0, 9),
)
def test_windows_are_cut_and_put_back(height, width, window, shift, padded, always, seed):
    """Also where a map counts as padded that is not, as in a compiled graph."""
    with patch.object(WindowLayout, 'is_padded', True) if always else nullcontext():
        check_windows(height, width, window, shift, padded, seed)


def check_windows(height, width, window, shift, padded, seed):
    layout = WindowLayout(height, width, window, shift % window)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, height * width, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    padding = torch.randn(1, 3, generator=generator, dtype=torch.float64, requires_grad=True) if padded else None
    got = layout.to_windows(x, padding)
    padded_h, padded_w = layout.padded
    moved = F.pad(x.unflatten(1, (height, width)), (0, 0, 0, padded_w - width, 0, padded_h - height))
    if padded:
        is_token = F.pad(torch.ones(height, width), (0, padded_w - width, 0, padded_h - height))[..., None]
        moved = moved + (1 - is_token) * padding
    moved = moved.roll((-layout.shift, -layout.shift), (1, 2))
    windows = [
        moved[:, r : r + window, c : c + window].flatten(1, 2)
        for r in range(0, padded_h, window)
        for c in range(0, padded_w, window)
    ]
    expected = torch.stack(windows, dim=1)
    assert torch.equal(got, expected)
    assert torch.equal(layout.from_windows(got), x)
    weights = torch.randn(got.shape, generator=generator, dtype=torch.float64)
    leaves = [x, padding] if padded else [x]
    assert_close(torch.autograd.grad(got, leaves, weights), torch.autograd.grad(expected, leaves, weights))
    full = weights.clone().requires_grad_()
    (grad,) = torch.autograd.grad(layout.from_windows(full), full, x.detach())
    assert torch.equal(grad, layout.to_windows(x).detach())


@given(height=sides, width=sides, window=st.integers(2, 5), shift=st.integers(1, 4))
def test_tokens_of_a_window_that_were_no_neighbours_are_masked(height, width, window, shift):
    """Two tokens of a shifted window see each other unless the roll brought them together."""
    shift = shift % window or 1
    layout = WindowLayout(height, width, window, shift)
    padded_h, padded_w = layout.padded
    mask = layout.mask(torch.device('cpu'))
    rows, cols = layout.windows
    for r, c in itertools.product(range(rows), range(cols)):
        tokens = list(itertools.product(range(r * window, (r + 1) * window), range(c * window, (c + 1) * window)))
        for (i, a), (j, b) in itertools.product(enumerate(tokens), enumerate(tokens)):
            wrapped = [[p + shift >= side for p, side in zip(t, (padded_h, padded_w), strict=True)] for t in (a, b)]
            expected = 0.0 if wrapped[0] == wrapped[1] else MASKED
            assert mask[r * cols + c, i, j] == expected


def test_masks_are_cached_and_the_cache_is_bounded():
    cpu = torch.device('cpu')
    first = WindowLayout(8, 8, 4, 2).mask(cpu)
    assert first is WindowLayout(7, 6, 4, 2).mask(cpu)
    for side in range(4, 200):
        WindowLayout(side, 4, 4, 2).mask(cpu)
    assert first is not WindowLayout(8, 8, 4, 2).mask(cpu)
