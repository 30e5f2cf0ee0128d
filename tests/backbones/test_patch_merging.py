"""Patch merging against mmcv's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmcv.cnn.bricks.transformer import PatchMerging
from torch.testing import assert_close

from vitplug.backbones.patch_merging import FastPatchMerging

SETTINGS = {
    'swin': {},
    'no norm': dict(norm_cfg=None, bias=True),
    'oblong': dict(kernel_size=(2, 3)),
    'overlapping': dict(kernel_size=3, stride=2, padding=1),
    'dilated': dict(dilation=2, padding='same'),
    'without padding': dict(padding=0),
}


@pytest.mark.parametrize('name', SETTINGS)
@given(st.integers(5, 9), st.integers(5, 9))
def test_same_as_mmcvs(name, height, width):
    ours, theirs = (
        kind(in_channels=3, out_channels=4, **SETTINGS[name]).double() for kind in (FastPatchMerging, PatchMerging)
    )
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, height * width, 3, dtype=torch.float64, requires_grad=True)
    got, got_size = ours(x, (height, width))
    expected, expected_size = theirs(x, (height, width))
    assert got_size == expected_size
    assert_close(got, expected)
    g = torch.randn_like(got)
    assert_close(torch.autograd.grad(got, x, g), torch.autograd.grad(expected, x, g))
