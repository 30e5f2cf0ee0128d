"""Swin Transformer V2: timm's and mmpretrain's numbers with their weights, and where plugs act in it."""

import copy
import re

import mmpretrain.models as stock
import pytest
import timm
import torch
from cases import images, randomize

from vitplug.attention import fused_attention
from vitplug.backbones import SwinTransformerV2

ARCH = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4], extra_norm_every_n_blocks=0)
VARIANTS = {
    'default': dict(),
    'pad-small': dict(pad_small_map=True, use_abs_pos_embed=True),
    'pretrained-windows': dict(window_size=[4, 2], pretrained_window_sizes=[6, 3]),
    'extra-norms': dict(arch={**ARCH, 'extra_norm_every_n_blocks': 2}, norm_cfg=None, out_indices=(1,)),
    'blocks': dict(stage_cfgs=[dict(block_cfgs=dict(ffn_ratio=2.0, attn_cfgs=dict(qkv_bias=False))), dict()]),
    'bias': dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(cpb_mlp_hidden_dims=8)))),
}
SIZES = [(32, 32), (64, 48), (37, 51)]
SMALL_SIZES = [(16, 80), (5, 7)]


def pair(**settings):
    """mmpretrain's model with random weights, and ours that loaded them."""
    defaults = dict(arch=ARCH, img_size=32, window_size=4, out_indices=(0, 1), pretrained_window_sizes=[0, 0])
    settings = {**defaults, **settings}
    theirs = randomize(stock.SwinTransformerV2(**copy.deepcopy(settings)))
    ours = SwinTransformerV2(**copy.deepcopy(settings))
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    return theirs.double(), ours.double().eval()


def gradients(model, outs):
    """Gradients by parameter of a loss that every output element moves by another amount."""
    sum((out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).sum() for out in outs).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def assert_same(got, expected, tolerance):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize('variant', VARIANTS)
def test_equals_mmpretrain(variant):
    theirs, ours = pair(**VARIANTS[variant])
    for size in SIZES + SMALL_SIZES * (variant == 'pad-small'):
        x = images(*size)
        expected = theirs(x)
        assert_same(ours(x), expected, 1e-11)
        with fused_attention(False):
            assert_same(ours(x), expected, 1e-11)
    assert_same(gradients(ours, ours(x)), gradients(theirs, theirs(x)), 1e-9)


NAMES = [
    (r'patch_embed\.proj\.', 'patch_embed.projection.'),
    (r'layers\.(\d+)\.', r'stages.\1.'),
    (r'\.attn\.', '.attn.w_msa.'),
    (r'\.mlp\.fc1\.', '.ffn.layers.0.0.'),
    (r'\.mlp\.fc2\.', '.ffn.layers.1.'),
    (r'^norm\.', 'norm3.'),
]


def renamed(state, channels_first):
    """Tensors of timm's model by our names; a merged patch has its channels first here, its columns and rows there."""
    found = {}
    for name, tensor in state.items():
        for theirs, ours in NAMES:
            name = re.sub(theirs, ours, name)
        found[name] = channels_first(tensor) if 'downsample.reduction' in name else tensor
    return found


def channels_first(weight):
    """Columns (across, down, channel) of a patch to (channel, down, across)."""
    return weight.unflatten(1, (2, 2, -1)).permute(0, 3, 2, 1).flatten(1)


def timm_pair(name, **settings):
    small = dict(embed_dim=8, num_heads=(1, 2, 2, 4), img_size=64, window_size=2, num_classes=0, drop_path_rate=0.0)
    theirs = randomize(timm.create_model(name, global_pool='', **{**small, **settings})).double()
    arch = dict(embed_dims=8, depths=[len(layer.blocks) for layer in theirs.layers], num_heads=[1, 2, 2, 4])
    ours = SwinTransformerV2(
        {**arch, 'extra_norm_every_n_blocks': 0},
        img_size=64,
        window_size=2,
        drop_path_rate=0.0,
        pretrained_window_sizes=settings.get('pretrained_window_sizes', 0),
    ).double()
    keys = ours.load_state_dict(renamed(theirs.state_dict(), channels_first), strict=True)
    assert not keys.missing_keys and not keys.unexpected_keys
    return theirs, ours


@pytest.mark.parametrize(
    ('name', 'settings'),
    [
        ('swinv2_tiny_window8_256', dict()),
        ('swinv2_small_window8_256', dict()),
        ('swinv2_base_window12to16_192to256', dict(depths=(2, 2, 2, 2), pretrained_window_sizes=(3, 3, 3, 2))),
    ],
    ids=['tiny', 'small', 'pretrained-windows'],
)
def test_equals_timm(name, settings):
    """Values and gradients, of images without padding: there timm shifts first."""
    theirs, ours = timm_pair(name, **settings)
    x = images(64, 64)
    expected, got = theirs(x), ours(x)[0].permute(0, 2, 3, 1)
    assert_same(got, expected, 1e-9)
    assert_same(gradients(ours, [got]), renamed(gradients(theirs, [expected]), channels_first), 1e-9)
