"""The released weights of further hosts: MViTv2, ReMViTv2, T2T-ViT and LVT."""

import re
from argparse import Namespace

import pytest
import torch
from cases import images, randomize
from checkpoints import released
from checkpoints.released import randoms
from checkpoints.test_released import assert_fits, logits
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from timm.models.pit import PoolingVisionTransformer

from vitplug.checkpoints import convert, load_pretrained

MVIT = dict(
    type='vitplug.MViT', arch=dict(embed_dims=8, num_layers=4, num_heads=1, downscale_indices=[1, 3]), img_size=32
)
REMVIT = dict(MVIT, plugs=[dict(type='ResidualAttention', constraint='none', bias_mode='after_carried')])
T2T = dict(
    type='vitplug.T2T_ViT',
    img_size=32,
    embed_dims=24,
    num_layers=3,
    layer_cfgs=dict(num_heads=3, feedforward_channels=48),
    t2t_cfg=dict(token_dims=8, use_performer=True),
    qk_scale=24**-0.5,
)
LVT = dict(
    type='vitplug.LVT',
    arch=dict(embed_dims=[8, 8, 16], depths=[1, 2, 1], num_heads=[2, 2, 4], mlp_ratios=[4, 8, 4], sr_ratios=[8, 4, 2]),
    img_size=64,
)
CLS_HEAD, LINEAR_HEAD = dict(type='VisionTransformerClsHead'), dict(type='LinearClsHead')


def of_pyslowfast(state):
    return dict(epoch=1, model_state=state, optimizer_state={}, cfg='MODEL: {}')


def of_revit(state):
    return dict(epoch=3, model_state_dict={f'module.{k}': v for k, v in state.items()}, optimizer_state_dict={})


def of_timm(state):
    return dict(state_dict_ema=state, args=Namespace(lr=0.1))


CASES = {
    'mvit': (released.mvit(**released.TINY_MVIT, classes=5), released.run_mvit, MVIT, LINEAR_HEAD, of_pyslowfast, 32),
    'remvit': (
        {'alpha': (1,), **released.mvit(**released.TINY_MVIT, classes=5)},
        released.run_mvit,
        REMVIT,
        LINEAR_HEAD,
        of_revit,
        32,
    ),
    't2t-performer': (released.t2t_vit(), released.run_t2t_vit, T2T, CLS_HEAD, of_timm, 24),
    't2t-transformer': (
        released.t2t_vit(performer=False),
        released.run_t2t_vit,
        dict(T2T, t2t_cfg=dict(token_dims=8)),
        CLS_HEAD,
        of_timm,
        24,
    ),
    'lvt': (
        released.lvt(**released.TINY_LVT),
        released.run_lvt,
        dict(LVT, out_type='raw'),
        dict(type='vitplug.TokenLabelHead'),
        of_timm,
        16,
    ),
    'lvt-plain': (
        released.lvt(**released.TINY_LVT, with_class_attention=False),
        released.run_lvt,
        dict(LVT, out_type='avg_featmap'),
        LINEAR_HEAD,
        of_timm,
        16,
    ),
}


@pytest.mark.parametrize('case', CASES)
def test_scores_are_those_of_the_authors_network(case, tmp_path):
    shapes, run, backbone, head, save, in_channels = CASES[case]
    state = randoms(shapes)
    torch.save(save(state), tmp_path / 'released.pth.tar')
    head = dict(head, in_channels=in_channels, num_classes=5)
    neck = dict(type='GlobalAveragePooling') if 'MViT' in backbone['type'] else None
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)).double().eval()
    coverage = load_pretrained(model, tmp_path / 'released.pth.tar')
    assert [coverage.missing, coverage.plugs, coverage.heads, coverage.unused, coverage.resized] == [[]] * 5
    x = images(backbone['img_size'], backbone['img_size'])
    expected = run(state, x)
    assert (logits(model, x) - expected).abs().max() <= 1e-9 * expected.abs().max()


FULL = {
    'residual_attention/mvitv2-t_8xb256-300e_in1k': released.mvit(),
    'residual_attention/mvitv2-t-residual-official_8xb256-300e_in1k': {'alpha': (1,), **released.mvit()},
    'broad_attention/t2t-vit-7_8xb128-30e_in1k': released.t2t_vit(256, 7, 2, 64, True, 224, 1000),
    'broad_attention/lvt_8xb128-30e_in1k': released.lvt(),
}


@pytest.mark.parametrize('config', FULL)
def test_every_released_tensor_has_a_place_in_the_config(config):
    assert_fits(FULL[config], config)


def timm_pit(distilled):
    sizes = dict(img_size=32, patch_size=8, stride=4, base_dims=(8, 8, 8), depth=(1, 2, 1), heads=(1, 2, 4))
    return PoolingVisionTransformer(**sizes, mlp_ratio=4, num_classes=5, distilled=distilled)


@pytest.mark.parametrize('distilled', [False, True])
def test_pit(distilled):
    """timm's names; the authors count the poolings by themselves."""
    theirs = randomize(timm_pit(distilled).double())
    theirs.eval()
    arch = dict(embed_dims=[8, 16, 32], depths=[1, 2, 1], num_heads=[1, 2, 4], patch_size=8, stride=4)
    backbone = dict(type='vitplug.PoolingVisionTransformer', arch=arch, img_size=32, distilled=distilled)
    head = dict(type='DeiTClsHead' if distilled else 'VisionTransformerClsHead', in_channels=32, num_classes=5)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head)).double().eval()
    stock = theirs.state_dict()
    counted = {
        re.sub(r'transformers\.(\d)\.pool', lambda found: f'pools.{int(found[1]) - 1}', key): value
        for key, value in stock.items()
    }
    x = images(32, 32)
    for state, name in ((stock, 'timm PiT'), (counted, 'original PiT')):
        converted, known, _ = convert(state)
        assert known.name == name
        model.load_state_dict(converted)
        with torch.no_grad():
            expected = theirs(x)
        assert (logits(model, x) - expected).abs().max() <= 1e-9 * expected.abs().max()
        back = convert(converted, 'timm').state
        assert back.keys() == stock.keys() and all(torch.equal(back[key], value) for key, value in stock.items())


def test_networks_that_a_library_lacks():
    t2t, lvt = randoms(released.t2t_vit()), randoms(released.lvt(**released.TINY_LVT))
    for state, network in ((t2t, 'T2T-ViT'), (lvt, 'LVT')):
        with pytest.raises(ValueError, match=rf'timm has no {network}: expected one of ViT, .*MLP-Mixer, PiT'):
            convert(state, 'timm')
