"""Exact parameter counts: timm's for the hosts, and those of the papers' modified models.

Whole classifiers with 1000 classes; a linear head has ``1000 (D + 1)`` parameters.
"""

from functools import partial

import pytest
import torch
from references import COUNTS, equals

from vitplug import backbones

CB = dict(type='ContextBroadcast')
CB_S = dict(type='ContextBroadcast', scaled=True)
GAB = dict(type='GaussianAttentionBias')
BROAD = dict(type='BroadAttention')
RESIDUAL = dict(type='ResidualAttention')
FIXED = dict(type='ResidualAttention', alpha=0.5, learnable=False)
REFINER = dict(type='Refiner')


def vit(arch, plugs=(), **settings):
    return backbones.VisionTransformer(arch=arch, plugs=list(plugs), **settings)


def distilled(arch):
    return backbones.DistilledVisionTransformer(arch=arch)


def narrow(depth, dims, heads, plugs=(), **settings):
    """The deep and narrow ViTs of the Refiner paper, with an MLP of three times the width."""
    arch = dict(embed_dims=dims, num_layers=depth, num_heads=heads, feedforward_channels=3 * dims)
    return vit(arch, plugs, **settings)


def refined(depth, dims, heads):
    """Refined-ViT-S/M/L, with a convolutional stem and shared maps."""
    return narrow(depth, dims, heads, [dict(type='Refiner', share=1)], stem='conv')


def relative(dims, heads, plugs=()):
    """ViT (R): RelPosMlp in place of a position table, no class token."""
    arch = dict(embed_dims=dims, num_layers=12, num_heads=heads, feedforward_channels=4 * dims)
    settings = dict(use_abs_pos_embed=False, with_cls_token=False, qkv_bias=False, layer_scale_init_value=1e-6)
    settings |= dict(final_norm=False, out_type='avg_featmap')
    return vit(arch, [dict(type='RelPosMlp'), *plugs], **settings)


def swin(arch, plugs=()):
    return backbones.SwinTransformer(arch=arch, plugs=list(plugs))


def mvit(arch, plugs=()):
    return backbones.MViT(arch, plugs=list(plugs))


MODELS = {
    # hosts
    'DeiT-Ti': (vit, ('deit-tiny',)),
    'DeiT-S': (vit, ('deit-small',)),
    'DeiT-B': (vit, ('deit-base',)),
    'ViT-B at 384': (partial(vit, img_size=384), ('deit-base',)),
    'DeiT-Ti distilled': (distilled, ('deit-tiny',)),
    'DeiT-S distilled': (distilled, ('deit-small',)),
    'DeiT-B distilled': (distilled, ('deit-base',)),
    'ViT-L': (vit, ('large',)),
    'ViT-S (R)': (relative, (384, 6)),
    'ViT-M (R)': (relative, (512, 8)),
    'ViT-B (R)': (relative, (768, 12)),
    'Swin-T': (swin, ('tiny',)),
    'Swin-S': (swin, ('small',)),
    'SwinV2-T': (backbones.SwinTransformerV2, ('tiny',)),
    'SwinV2-S': (backbones.SwinTransformerV2, ('small',)),
    'LVT': (partial(backbones.LVT, out_type='raw'), ()),
    'LVT, average pooling': (partial(backbones.LVT, out_type='avg_featmap'), ()),
    'PiT-B': (backbones.PoolingVisionTransformer, ('b',)),
    'Mixer-S/16': (backbones.MlpMixer, ('s',)),
    'MViTv2-T': (mvit, ('tiny',)),
    'ViT 16 x 384': (narrow, (16, 384, 12)),
    'ViT 24 x 384': (narrow, (24, 384, 12)),
    'ViT 32 x 384': (narrow, (32, 384, 12)),
    # Context Broadcasting
    'DeiT-Ti + CB': (vit, ('deit-tiny', [CB])),
    'DeiT-S + CB': (vit, ('deit-small', [CB])),
    'DeiT-B + CB': (vit, ('deit-base', [CB])),
    'DeiT-Ti + CB_S': (vit, ('deit-tiny', [CB_S])),
    'DeiT-S + CB_S': (vit, ('deit-small', [CB_S])),
    'DeiT-B + CB_S': (vit, ('deit-base', [CB_S])),
    'PiT-B + CB': (partial(backbones.PoolingVisionTransformer, plugs=[CB]), ('b',)),
    'PiT-B + CB_S': (partial(backbones.PoolingVisionTransformer, plugs=[CB_S]), ('b',)),
    'Mixer-S/16 + CB': (partial(backbones.MlpMixer, plugs=[CB]), ('s',)),
    # Gaussian Attention Bias
    'ViT-S (R) + GAB': (relative, (384, 6, [GAB])),
    'ViT-M (R) + GAB': (relative, (512, 8, [GAB])),
    'ViT-B (R) + GAB': (relative, (768, 12, [GAB])),
    'Swin-T + GAB': (swin, ('tiny', [GAB])),
    'Swin-S + GAB': (swin, ('small', [GAB])),
    # Broad attention
    'BViT-5M': (vit, ('deit-tiny', [BROAD])),
    'BViT-22M': (vit, ('deit-small', [BROAD])),
    'BLVT': (partial(backbones.LVT, out_type='raw', plugs=[BROAD]), ()),
    # Residual attention
    'ReViT-B': (partial(vit, with_cls_token=False, out_type='featmap'), ('deit-base', [RESIDUAL])),
    'ReSwin-T': (swin, ('tiny', [FIXED])),
    'ReSwin-T, alpha learned': (swin, ('tiny', [RESIDUAL])),
    'ReMViTv2-T': (mvit, ('tiny', [RESIDUAL])),
    # Refiner
    'Refined-ViT on DeiT-B': (vit, ('deit-base', [REFINER])),
    'Refined-ViT-S': (refined, (16, 384, 12)),
    'Refined-ViT-M': (refined, (32, 420, 12)),
    'Refined-ViT-L': (refined, (32, 512, 16)),
}
# Models that the table of models has not, by one that it has.
DERIVED = {
    'Swin-T + GAB': COUNTS['Swin-T'] + 2 * 12,
    # The official code has no alpha to learn.
    'ReSwin-T, alpha learned': COUNTS['ReSwin-T'] + 1,
    # 2 r H^2 + r H k^2 a block.
    'Refined-ViT on DeiT-B': COUNTS['DeiT-B'] + 12 * (2 * 3 * 12**2 + 3 * 12 * 3**2),
}


def count(backbone):
    """Parameters of a classifier, with a head for each token that has one; LVT has one for its other tokens, too."""
    heads = 2 if getattr(backbone, 'post_network', None) else max(1, backbone.num_extra_tokens)
    return sum(p.numel() for p in backbone.parameters()) + heads * 1000 * (width(backbone) + 1)


def width(backbone):
    return getattr(backbone, 'num_features', [backbone.embed_dims])[-1]


@pytest.mark.parametrize('name', MODELS)
def test_count(name):
    make, args = MODELS[name]
    with torch.device('meta'):
        assert equals(count(make(*args)), (DERIVED | COUNTS)[name])
