"""Fits recover Gaussians that are known, and the bias of the central query is what the plug says."""

import math

import numpy as np
import pytest
import torch
from cases import HOSTS, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st

from vitplug.lab.study.measures.fields import fit_gaussian
from vitplug.lab.study.measures.learned import centre_bias

PLACE, SIDES = ('centre x', 'centre y'), ('sigma x', 'sigma y')


def gaussian(hw, amp, x, y, sigma_x, sigma_y):
    """The model of the paper, value by value."""
    image = np.empty(hw)
    for row in range(hw[0]):
        for column in range(hw[1]):
            exponent = (column - x) ** 2 / (2 * sigma_x**2) + (row - y) ** 2 / (2 * sigma_y**2)
            image[row, column] = amp / (2 * math.pi * sigma_x * sigma_y) * math.exp(-exponent)
    return image


@settings(max_examples=25, deadline=None)
@given(
    hw=st.tuples(st.integers(8, 40), st.integers(8, 40)),
    place=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    widths=st.tuples(st.floats(0.08, 0.4), st.floats(0.08, 0.4)),
    amp=st.floats(1e-8, 1e4),
)
def test_any_gaussian_on_the_map(hw, place, widths, amp):
    y, x = (share * (side - 1) for share, side in zip(place, hw, strict=True))
    sigma_y, sigma_x = (max(0.7, width * side) for width, side in zip(widths, hw, strict=True))
    fit = fit_gaussian(gaussian(hw, amp, x, y, sigma_x, sigma_y))
    assert fit['R²'] == pytest.approx(1, abs=1e-8)
    assert [fit[name] for name in PLACE + SIDES] == pytest.approx([x, y, sigma_x, sigma_y], rel=1e-3, abs=1e-3)


def test_noise_lowers_r_squared_by_its_share():
    """R^2 = 1 - var(residual) / var(map): the variance of the noise over that of the map."""
    clean = gaussian((60, 50), 1.0, 22.0, 31.0, 6.0, 9.0)
    noise = np.random.default_rng(0).normal(0, clean.std() / 2, clean.shape)
    fit = fit_gaussian(clean + noise)
    assert [fit[name] for name in PLACE] == pytest.approx([22, 31], abs=0.5)
    assert [fit[name] for name in SIDES] == pytest.approx([6, 9], rel=0.06)
    assert fit['R²'] == pytest.approx(0.8, abs=0.03)  # 1 / (1 + 1/4)


@pytest.mark.parametrize(('x', 'y'), [(84.3, 22.1), (30.0, 90.0), (55.5, 55.5)])
def test_sharp_peak_on_a_floor_of_noise(x, y):
    """As in receptive fields of few images: a flat Gaussian through the floor is a local optimum, with R^2 0.02."""
    floor = np.abs(np.random.default_rng(0).normal(size=(112, 112)))
    fit = fit_gaussian(floor + gaussian((112, 112), 2000.0, x, y, 3.0, 3.0))
    assert [fit[name] for name in PLACE + SIDES] == pytest.approx([x, y, 3.1, 3.1], abs=0.15)
    assert fit['R²'] > 0.85


def test_bounds():
    """A valley: its volume is negative, which bounds forbid."""
    valley = -gaussian((15, 15), 1.0, 7.0, 7.0, 2.0, 3.0)
    assert not fit_gaussian(valley)['R²'] > 0.5
    outside = fit_gaussian(gaussian((15, 15), 1.0, -3.0, 7.0, 4.0, 4.0))
    assert outside['centre x'] >= 0


def test_maps_without_a_gaussian():
    for seed in range(20):  # maps without a pattern
        fit = fit_gaussian(np.random.default_rng(seed).normal(size=(4, 4)))
        assert fit['R²'] > 0 or all(map(math.isnan, fit.values()))
    for none in (np.full((5, 5), 3.0), np.arange(9.0).reshape(1, 9), np.eye(2), np.full((4, 4), np.nan)):
        assert all(map(math.isnan, fit_gaussian(none).values()))


def recorded(model, size=(32, 40)):
    with torch.no_grad():
        _, found = model.forward_intermediates(torch.randn(1, 3, *size), ('bias', 'site'))
    return {layer: centre_bias(bias, found['site'][layer]) for layer, bias in found['bias'].items()}


def test_gab_gives_back_its_sigma():
    """On 20 x 20 tokens the central query is (9, 9)."""
    torch.manual_seed(0)
    model = vit(img_size=160, plugs=[dict(type='GaussianAttentionBias', amplitude=1.5, sigma=2.5)]).eval()
    for field in recorded(model, (160, 160)).values():
        assert field.shape == (20, 20)
        fit = fit_gaussian(field)
        assert [fit[name] for name in (*PLACE, *SIDES, 'R²')] == pytest.approx([9, 9, 2.5, 2.5, 1], rel=1e-5)
        assert field.max() == pytest.approx(1.5**2, rel=1e-5)


def test_bias_of_the_central_query():
    """Swin's table, read entry by entry."""
    torch.manual_seed(0)
    model = randomize(swin()).eval()
    for layer, field in recorded(model, (32, 32)).items():
        table = model.plugged_blocks()[layer].attn.w_msa.relative_position_bias_table.detach().double().mean(1)
        expected = torch.tensor([[table[(1 - y + 3) * 7 + (1 - x + 3)] for x in range(4)] for y in range(4)])
        torch.testing.assert_close(field, expected - expected.min())


def test_bias_of_every_host_lies_on_the_grid_of_its_keys():
    torch.manual_seed(0)
    for host, size in (('lvt', (32, 48)), ('mvit', (32, 32)), ('vit-windows', (32, 40))):
        model = HOSTS[host](plugs=[dict(type='GaussianAttentionBias', layers=[1])]).eval()
        with torch.no_grad():
            _, found = model.forward_intermediates(torch.randn(1, 3, *size), ('bias', 'site'), layers=[1])
        field = centre_bias(found['bias'][1], found['site'][1])
        assert field.shape == found['site'][1].pairs.keys.hw
        assert field.min() == 0
    assert centre_bias(torch.zeros(2, 1, 2, 4, 4), found['site'][1]) is None  # of each image another
