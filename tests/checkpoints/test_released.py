"""Weights of the papers' authors compute in vitplug what their networks compute, and every tensor has a place."""

from argparse import Namespace
from pathlib import Path

import pytest
import released
import torch
from cases import images
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from released import randoms

from vitplug.checkpoints import convert, load_pretrained, recognise
from vitplug.checkpoints.formats import is_derived

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
VIT = dict(type='vitplug.VisionTransformer', arch=dict(embed_dims=24, num_layers=4, num_heads=3))
WIDE = dict(VIT['arch'], feedforward_channels=96)
REFINED = dict(
    VIT,
    arch=dict(VIT['arch'], feedforward_channels=72),
    img_size=64,
    patch_size=16,
    stem='conv',
    layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6)),
    plugs=[dict(type='Refiner', scheme='official', mode='mbconv', init='default', share=1)],
)
RESIDUAL = [dict(type='ResidualAttention', constraint='none')]
REVIT = dict(VIT, arch=WIDE, img_size=32, patch_size=8, with_cls_token=False, out_type='featmap', plugs=RESIDUAL)
RESWIN = dict(
    type='vitplug.SwinTransformer',
    arch=dict(embed_dims=12, depths=[2, 2, 2], num_heads=[2, 4, 4]),
    img_size=64,
    window_size=4,
    out_indices=(2,),
    plugs=[dict(type='ResidualAttention', learnable=False, bias_mode='blend', stage_transition='flat_nearest')],
)
BVIT = dict(
    VIT,
    arch=WIDE,
    img_size=64,
    # Patches of 8 x 8 after a 7 x 7 convolution of stride 2, of 3 channels.
    patch_size=16,
    patch_cfg=dict(kernel_size=21, padding=3),
    qkv_bias=False,
    norm_cfg=dict(type='LN'),
    plugs=[dict(type='BroadAttention', gamma=0.4, scale='head')],
)
MVIT_ARCH = dict(embed_dims=8, num_layers=4, num_heads=1, downscale_indices=[1, 3])
MVIT = dict(type='vitplug.MViT', arch=MVIT_ARCH, img_size=32)
REMVIT = dict(MVIT, plugs=[dict(type='ResidualAttention', constraint='none', bias_mode='after_carried')])
T2T = dict(
    type='vitplug.T2T_ViT',
    img_size=32,
    embed_dims=24,
    num_layers=3,
    layer_cfgs=dict(num_heads=3, feedforward_channels=48),
    t2t_cfg=dict(token_dims=8),
    qk_scale=24**-0.5,
)
PERFORMER = dict(T2T, t2t_cfg=dict(token_dims=8, use_performer=True))
LVT = dict(
    type='vitplug.LVT',
    arch=dict(embed_dims=[8, 8, 16], depths=[1, 2, 1], num_heads=[2, 2, 4], mlp_ratios=[4, 8, 4], sr_ratios=[8, 4, 2]),
    img_size=64,
)
CLS_HEAD, LINEAR_HEAD = dict(type='VisionTransformerClsHead'), dict(type='LinearClsHead')
DENSE_HEAD = dict(type='vitplug.TokenLabelHead')
OPTIONS = Namespace(lr=0.1)


def of_timm(state):
    """As timm's training saves them, with averaged weights beside."""
    return dict(state_dict={k: torch.zeros_like(v) for k, v in state.items()}, state_dict_ema=state, args=OPTIONS)


def of_revit(state):
    return dict(epoch=3, model_state_dict={f'module.{k}': v for k, v in state.items()}, optimizer_state_dict={})


def of_bvit(state):
    return dict(model={f'model.{k}': v for k, v in state.items()}, epoch=3, args=OPTIONS)


def of_pyslowfast(state):
    return dict(epoch=1, model_state=state, optimizer_state={}, cfg='MODEL: {}')


MVIT_SHAPES = released.mvit(**released.TINY_MVIT, classes=5)
REMVIT_SHAPES = {'alpha': (1,), **MVIT_SHAPES}
LVT_SHAPES = released.lvt(**released.TINY_LVT)
PLAIN_LVT_SHAPES = released.lvt(**released.TINY_LVT, with_class_attention=False)
UNSCALED = released.refined_vit(scaled=False)
# Shapes, their network, vitplug's backbone and head, what the authors save.
RELEASED = {
    'Refined-ViT': (released.refined_vit(), released.run_refined_vit, REFINED, CLS_HEAD, of_timm),
    'Refined-ViT, dense': (
        released.refined_vit(dense=True),
        released.run_refined_vit,
        dict(REFINED, out_type='raw'),
        DENSE_HEAD,
        of_timm,
    ),
    'Refined-ViT, unscaled': (UNSCALED, released.run_refined_vit, REFINED, CLS_HEAD, of_timm),
    'ReViT': (released.revit(), released.run_revit, REVIT, LINEAR_HEAD, of_revit),
    'original Swin': (released.reswin(), released.run_reswin, RESWIN, LINEAR_HEAD, of_revit),
    'BViT': (released.bvit(), released.run_bvit, BVIT, CLS_HEAD, of_bvit),
    'original MViT or ReMViT': (MVIT_SHAPES, released.run_mvit, MVIT, LINEAR_HEAD, of_pyslowfast),
    'original MViT or ReMViT, with alpha': (REMVIT_SHAPES, released.run_mvit, REMVIT, LINEAR_HEAD, of_revit),
    'original T2T-ViT': (released.t2t_vit(performer=False), released.run_t2t_vit, T2T, CLS_HEAD, of_timm),
    'original T2T-ViT, performer': (released.t2t_vit(), released.run_t2t_vit, PERFORMER, CLS_HEAD, of_timm),
    'original LVT': (LVT_SHAPES, released.run_lvt, dict(LVT, out_type='raw'), DENSE_HEAD, of_timm),
    'original LVT, plain': (
        PLAIN_LVT_SHAPES,
        released.run_lvt,
        dict(LVT, out_type='avg_featmap'),
        LINEAR_HEAD,
        of_timm,
    ),
}


def classifier(backbone, head, in_channels=24):
    head = dict(head, in_channels=in_channels, num_classes=5)
    has_maps = head['type'] == 'LinearClsHead' and 'LVT' not in backbone['type']
    neck = dict(type='GlobalAveragePooling') if has_maps else None
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)).double().eval()


def logits(model, x):
    with torch.no_grad():
        return model.head(model.extract_feat(x))


@pytest.mark.parametrize('case', RELEASED)
def test_scores_are_those_of_the_authors_network(case, tmp_path):
    shapes, run, backbone, head, save = RELEASED[case]
    state = randoms(shapes)
    torch.save(save(state), tmp_path / 'released.pth.tar')
    widths = dict(SwinTransformer=48, MViT=32, LVT=16)
    model = classifier(backbone, head, widths.get(backbone['type'].removeprefix('vitplug.'), 24))
    coverage = load_pretrained(model, tmp_path / 'released.pth.tar')
    assert f'({case.partition(",")[0]}, ' in coverage.source
    assert [coverage.missing, coverage.plugs, coverage.unused, coverage.resized] == [[]] * 4
    x = images(backbone['img_size'], backbone['img_size'])
    expected = run(state, x)
    assert (logits(model, x) - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_statistics_of_maps_keep_their_number_of_tokens(tmp_path):
    """In a network for larger images, too: probabilities are smaller there, and the plug makes up for it."""
    torch.save(randoms(released.refined_vit()), tmp_path / 'released.pth')
    model = classifier(dict(REFINED, img_size=96), CLS_HEAD)
    load_pretrained(model, tmp_path / 'released.pth')
    found = [value.item() for key, value in model.state_dict().items() if key.endswith('reference_tokens')]
    assert found == [17, 17]


# Shapes of the released files; `tests/test_parameter_counts.py` counts the configs' parameters.
FULL = {
    'refiner/convstem-vit-s-p16-refiner-official_8xb64-300e_in1k': released.refined_vit(384, 16, 12, 1000, 224, 16),
    'refiner/convstem-vit-l-p16-refiner-official_8xb64-300e_in1k': released.refined_vit(512, 32, 16, 1000, 224, 16),
    'residual_attention/vit-b-p16-residual-official_32xb128-300e_in1k': released.revit(768, 12, 1000, 224, 16),
    'residual_attention/swin-t-p4-w7-residual-official_8xb128-300e_in1k': (
        released.reswin(96, (2, 2, 6, 2), (3, 6, 12, 24), 1000, 7, 4)
    ),
    'residual_attention/mvitv2-t-residual-official_8xb256-300e_in1k': {'alpha': (1,), **released.mvit()},
    'broad_attention/t2t-vit-7_8xb128-30e_in1k': released.t2t_vit(256, 7, 2, 64, True, 224, 1000),
    'broad_attention/lvt_8xb128-30e_in1k': released.lvt(),
}


@pytest.mark.parametrize('config', FULL)
def test_every_released_tensor_has_a_place_in_the_config(config):
    cfg = Config.fromfile(CONFIGS / f'{config}.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'), torch.device('meta'):
        own = MODELS.build(cfg.model).state_dict()
    given = convert({name: torch.empty(shape, device='meta') for name, shape in FULL[config].items()}).state
    # The classifier has one of two names.
    own, given = (
        {key.replace('head.layers.head.', 'head.fc.'): value.shape for key, value in state.items()}
        for state in (own, given)
    )
    assert given == {key: shape for key, shape in own.items() if not is_derived(key)}
    if 'refiner' in config:  # LN(x / 2) with an epsilon of 1e-6
        assert cfg.model.backbone.layer_cfgs.norm_cfg == dict(type='LN', eps=4e-6)


# --- what is refused ---


def test_variants_that_vitplug_lacks_are_refused_by_name(tmp_path):
    hybrid = {f'patch_embed.backbone.{i}.weight': torch.zeros(1) for i in range(7)}
    torch.save(randoms(released.refined_vit()) | hybrid, tmp_path / 'hybrid.pth')
    with pytest.raises(ValueError, match=r'no place for 7 tensors of it: patch_embed\.backbone\.0\.weight'):
        load_pretrained(classifier(REFINED, CLS_HEAD), tmp_path / 'hybrid.pth')
    stemless = {key: value for key, value in randoms(released.bvit()).items() if not key.startswith('conv.')}
    with pytest.raises(ValueError, match=r'match no known network: expected .*Refined-ViT, .*timm ViT'):
        recognise(stemless)  # a ViT of another library, with the same names
