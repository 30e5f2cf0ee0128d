"""Exact parameter counts: timm's for the hosts, and those of the papers' modified models.

Whole classifiers with 1000 classes; a linear head has ``1000 (D + 1)`` parameters.
"""

import pytest
import torch

from vitplug.backbones import DistilledVisionTransformer, SwinTransformer, VisionTransformer

CB = dict(type='ContextBroadcast')
CB_S = dict(type='ContextBroadcast', scaled=True)
GAB = dict(type='GaussianAttentionBias')
BROAD = dict(type='BroadAttention')
RESIDUAL = dict(type='ResidualAttention')
FIXED = dict(type='ResidualAttention', alpha=0.5, learnable=False)
REFINER = dict(type='Refiner')


def vit(arch, plugs=(), **settings):
    return VisionTransformer(arch=arch, plugs=list(plugs), **settings)


def distilled(arch):
    return DistilledVisionTransformer(arch=arch)


def narrow(depth, dims, heads, plugs=(), **settings):
    """The deep and narrow ViTs of the Refiner paper, with an MLP of three times the width."""
    arch = dict(embed_dims=dims, num_layers=depth, num_heads=heads, feedforward_channels=3 * dims)
    return vit(arch, plugs, **settings)


def relative(dims, heads, plugs=()):
    """ViT (R): RelPosMlp in place of a position table, no class token."""
    arch = dict(embed_dims=dims, num_layers=12, num_heads=heads, feedforward_channels=4 * dims)
    settings = dict(use_abs_pos_embed=False, with_cls_token=False, qkv_bias=False, layer_scale_init_value=1e-6)
    settings |= dict(final_norm=False, out_type='avg_featmap')
    return vit(arch, [dict(type='RelPosMlp'), *plugs], **settings)


def swin(arch, plugs=()):
    return SwinTransformer(arch=arch, plugs=list(plugs))


COUNTS = {
    # hosts
    'DeiT-Ti': (vit, ('deit-tiny',), {}, 5_717_416),
    'DeiT-S': (vit, ('deit-small',), {}, 22_050_664),
    'DeiT-B': (vit, ('deit-base',), {}, 86_567_656),
    'ViT-B at 384': (vit, ('deit-base',), dict(img_size=384), 86_859_496),
    'ViT-S (R)': (relative, (384, 6), {}, 21_983_920),
    'ViT-M (R)': (relative, (512, 8), {}, 38_747_208),
    'ViT-B (R)': (relative, (768, 12), {}, 86_429_560),
    'Swin-T': (swin, ('tiny',), {}, 28_288_354),
    'Swin-S': (swin, ('small',), {}, 49_606_258),
    # Context Broadcasting
    'DeiT-Ti + CB': (vit, ('deit-tiny', [CB]), {}, 5_717_416),
    'DeiT-S + CB': (vit, ('deit-small', [CB]), {}, 22_050_664),
    'DeiT-B + CB': (vit, ('deit-base', [CB]), {}, 86_567_656),
    'DeiT-Ti + CB_S': (vit, ('deit-tiny', [CB_S]), {}, 5_719_720),
    'DeiT-S + CB_S': (vit, ('deit-small', [CB_S]), {}, 22_055_272),
    'DeiT-B + CB_S': (vit, ('deit-base', [CB_S]), {}, 86_576_872),
    # Gaussian Attention Bias
    'ViT-S (R) + GAB': (relative, (384, 6, [GAB]), {}, 21_983_944),
    'ViT-M (R) + GAB': (relative, (512, 8, [GAB]), {}, 38_747_232),
    'ViT-B (R) + GAB': (relative, (768, 12, [GAB]), {}, 86_429_584),
    'Swin-T + GAB': (swin, ('tiny', [GAB]), {}, 28_288_354 + 24),
    'Swin-S + GAB': (swin, ('small', [GAB]), {}, 49_606_258 + 48),
    # Broad attention
    'BViT-5M': (vit, ('deit-tiny', [BROAD]), {}, 5_717_416),
    'BViT-22M': (vit, ('deit-small', [BROAD]), {}, 22_050_664),
    # Residual attention; the official ReSwin-T has no alpha to learn
    'ReViT-B': (vit, ('deit-base', [RESIDUAL]), dict(with_cls_token=False, out_type='featmap'), 86_566_121),
    'ReSwin-T': (swin, ('tiny', [FIXED]), {}, 28_288_354),
    'ReSwin-T, alpha learned': (swin, ('tiny', [RESIDUAL]), {}, 28_288_355),
    # Refiner: 2 r H^2 + r H k^2 a block
    'Refined-ViT-Base': (vit, ('deit-base', [REFINER]), {}, 86_567_656 + 12 * 1188),
}
# Known to a thousand: depth, width and heads, and millions.
PLAIN = {(16, 384, 12): 24.424, (24, 384, 12): 36.257, (32, 384, 12): 48.090}
STEMMED = {(16, 384, 12): 25.016, (32, 420, 12): 55.013, (32, 512, 16): 80.617}


def count(backbone, num_heads=1):
    return sum(p.numel() for p in backbone.parameters()) + num_heads * 1000 * (width(backbone) + 1)


def width(backbone):
    return getattr(backbone, 'num_features', [backbone.embed_dims])[-1]


@pytest.mark.parametrize('name', COUNTS)
def test_count(name):
    make, args, settings, expected = COUNTS[name]
    with torch.device('meta'):
        assert count(make(*args, **settings)) == expected


@pytest.mark.parametrize(
    ('arch', 'expected'),
    [('deit-tiny', 5_910_800), ('deit-small', 22_436_432), ('deit-base', 87_338_192)],
)
def test_distilled_have_two_tokens_and_two_heads(arch, expected):
    with torch.device('meta'):
        assert count(distilled(arch), num_heads=2) == expected


@pytest.mark.parametrize('shape', PLAIN, ids=str)
def test_deep_and_narrow_vits(shape):
    with torch.device('meta'):
        assert round(count(narrow(*shape)) / 1e6, 3) == PLAIN[shape]


@pytest.mark.parametrize('shape', STEMMED, ids=str)
def test_refined_vits_with_a_convolutional_stem(shape):
    with torch.device('meta'):
        backbone = narrow(*shape, [dict(type='Refiner', share=1)], stem='conv')
    assert round(count(backbone) / 1e6, 3) == STEMMED[shape]
