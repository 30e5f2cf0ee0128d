"""Patch merging against mmcv's own."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmcv.cnn.bricks.transformer import PatchMerging
from mmpretrain.models.utils import PatchMerging as PreOrPostNormPatchMerging
from torch.testing import assert_close

from vitplug.backbones.patch_merging import FastPatchMerging, PostNormPatchMerging

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
    check_same(FastPatchMerging, PatchMerging, SETTINGS[name], height, width)


@pytest.mark.parametrize('name', SETTINGS)
@given(st.integers(5, 9), st.integers(5, 9))
def test_norm_after_the_reduction_is_mmpretrains(name, height, width):
    theirs = partial(PreOrPostNormPatchMerging, use_post_norm=True)
    check_same(PostNormPatchMerging, theirs, SETTINGS[name], height, width)


def check_same(our_kind, their_kind, settings, height, width):
    ours, theirs = (kind(in_channels=3, out_channels=4, **settings).double() for kind in (our_kind, their_kind))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, height * width, 3, dtype=torch.float64, requires_grad=True)
    got, got_size = ours(x, (height, width))
    expected, expected_size = theirs(x, (height, width))
    assert got_size == expected_size
    assert_close(got, expected)
    g = torch.randn_like(got)
    assert_close(torch.autograd.grad(got, x, g), torch.autograd.grad(expected, x, g))
