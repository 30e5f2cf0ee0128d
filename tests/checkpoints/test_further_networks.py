"""Checkpoints of timm's further networks compute here and in mmpretrain what they compute there, and come back."""

from functools import partial

import pytest
import torch
from cases import images, randomize
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from timm.models.mlp_mixer import MlpMixer
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import nn

from vitplug.checkpoints import convert

# Backbones by mmpretrain's names, which vitplug has, too.
MVIT = dict(type='MViT', arch=dict(embed_dims=8, num_layers=4, num_heads=1, downscale_indices=[1, 3]), img_size=32)
MIXER = dict(
    type='MlpMixer',
    arch=dict(embed_dims=24, num_layers=3, tokens_mlp_dims=10, channels_mlp_dims=40),
    img_size=32,
    patch_size=8,
    norm_cfg=dict(type='LN', eps=1e-6),
)
SWIN_V2 = dict(
    type='SwinTransformerV2',
    arch=dict(embed_dims=12, depths=[2, 2, 2], num_heads=[2, 4, 4], extra_norm_every_n_blocks=0),
    img_size=64,
    window_size=4,
    out_indices=(2,),
)


def timm_mvit(expand_attn=True):
    cfg = MultiScaleVitCfg(depths=(1, 2, 1), embed_dim=8, num_heads=1, expand_attn=expand_attn, stride_q=STRIDES)
    return MultiScaleVit(cfg, img_size=(32, 32), num_classes=5)


# Both libraries compute the logarithms of offsets in single precision.
TOLERANCE = {'swin-v2': 1e-6}
STRIDES = ((1, 1), (2, 2), (2, 2))
TIMM = {
    'mvit': (timm_mvit, MVIT, 32, 32),
    'mvit-mlp': (partial(timm_mvit, expand_attn=False), dict(MVIT, dim_mul_in_attention=False), 32, 32),
    'mixer': (
        partial(
            MlpMixer,
            num_classes=5,
            img_size=32,
            patch_size=8,
            num_blocks=3,
            embed_dim=24,
            mlp_ratio=(10 / 24, 40 / 24),
        ),
        MIXER,
        24,
        32,
    ),
    'swin-v2': (
        partial(
            SwinTransformerV2,
            img_size=64,
            num_classes=5,
            embed_dim=12,
            depths=(2, 2, 2),
            num_heads=(2, 4, 4),
            window_size=4,
        ),
        SWIN_V2,
        48,
        64,
    ),
}


def random_timm(make):
    model = randomize(make().double())
    model.eval()
    return model


def classifier(backbone, in_channels):
    head = dict(type='LinearClsHead', in_channels=in_channels, num_classes=5)
    neck = dict(type='GlobalAveragePooling', dim=1 if 'Mixer' in backbone['type'] else 2)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)).double()
    model.eval()  # mmpretrain's returns nothing
    return model


def logits(model, x):
    with torch.no_grad():
        return model.head(model.extract_feat(x))


def assert_loaded(model: nn.Module, state):
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert unexpected == [] and [key for key in missing if 'relative_' not in key] == []


def assert_same(got, expected, tolerance=1e-9):
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()


def assert_same_bits(got, expected):
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[key], value) for key, value in expected.items())


@pytest.mark.parametrize('scope', ['', 'vitplug.'], ids=['mmpretrain', 'vitplug'])
@pytest.mark.parametrize('case', TIMM)
def test_timm(case, scope):
    make, backbone, width, side = TIMM[case]
    theirs = random_timm(make)
    model = classifier(dict(backbone, type=scope + backbone['type']), width)
    converted, known, notes = convert(theirs.state_dict())
    assert known.name.startswith('timm ') and notes == []
    assert_loaded(model, converted)
    x = images(side, side)
    with torch.no_grad():
        assert_same(logits(model, x), theirs(x), TOLERANCE.get(case, 1e-9))
    assert_same_bits(convert(model.state_dict(), 'timm').state, theirs.state_dict())


def test_original_swin_v2():
    """It has the patch merging in the stage before, tables beside, and another name of the classifier."""
    make, backbone, width, side = TIMM['swin-v2']
    theirs = random_timm(make)
    state = {key.replace('head.fc.', 'head.'): value for key, value in theirs.state_dict().items()}
    for stage in (1, 2):
        for part in ('norm.weight', 'norm.bias', 'reduction.weight'):
            state[f'layers.{stage - 1}.downsample.{part}'] = state.pop(f'layers.{stage}.downsample.{part}')
    state['layers.0.blocks.0.attn.relative_coords_table'] = torch.zeros(1, 7, 7, 2)
    converted, known, notes = convert(state)
    assert known.name == 'original Swin V2'
    assert notes == ['left out tables that models compute (1: layers.0.blocks.0.attn.relative_coords_table)']
    model = classifier(backbone, width)
    assert_loaded(model, converted)
    x = images(side, side)
    with torch.no_grad():
        assert_same(logits(model, x), theirs(x), TOLERANCE['swin-v2'])
    assert_same_bits(convert(converted, 'timm').state, theirs.state_dict())
