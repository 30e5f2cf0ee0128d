"""Files of other code bases through mmengine's own ``Pretrained``, ``load_from`` and ``pretrained``."""

import argparse

import pytest
import timm
import torch
from cases import images, randomize
from mmdet.models.backbones.swin import SwinTransformer as MMDetSwin
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from mmengine.runner import Runner, load_checkpoint
from mmpretrain.models import SwinTransformer as MMPretrainSwin
from mmpretrain.registry import MODELS
from mmseg.models.backbones.vit import VisionTransformer as MMSegViT
from mmseg.registry import MODELS as MMSEG_MODELS

from vitplug.checkpoints import convert

GAB = [dict(type='GaussianAttentionBias', amplitude=1e-6)]  # changes nothing, has parameters
ARCH = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4))
SWIN = dict(**ARCH, strides=(4, 2), window_size=4, out_indices=(1,), drop_path_rate=0.0)
VIT = dict(img_size=32, patch_size=8, embed_dims=24, num_layers=3, num_heads=3, out_indices=(0, 2), final_norm=True)
VIT |= dict(patch_bias=True, norm_cfg=dict(type='LN', eps=1e-6))


def as_release(state):
    """The names of the original Swin, or DeiT, in a dict with the arguments of its training."""
    named = convert(state, 'timm').state
    moved = {key.replace('layers.1.downsample', 'layers.0.downsample'): value for key, value in named.items()}
    return dict(model=moved, args=argparse.Namespace(lr=1.0))


# A file's content as a library or release writes it.
NAMINGS = {
    'timm': lambda state: convert(state, 'timm').state,
    'original': as_release,
    'mmdet': lambda state: dict(state_dict={f'backbone.{key}': value for key, value in state.items()}, meta={}),
    'bare': lambda state: dict(state_dict=dict(state), meta={}),
}


def stock(name):
    if name == 'swin':
        theirs = randomize(MMDetSwin(**SWIN))
        return theirs, dict(type='vitplug.SwinTransformer', **SWIN), images(64, 48, dtype=torch.float32)
    theirs = randomize(MMSegViT(**VIT))
    return theirs, dict(type='vitplug.VisionTransformer', **VIT), images(32, 32, dtype=torch.float32)


def in_file(theirs, naming, path):
    """The stock backbone's weights in a file of another naming."""
    torch.save(NAMINGS[naming](theirs.state_dict()), path)
    return str(path)


def assert_equal(ours, theirs, x):
    ours.eval(), theirs.eval()
    with torch.no_grad():
        for got, expected in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize('naming', NAMINGS)
@pytest.mark.parametrize('name', ['swin', 'vit'])
def test_init_cfg_of_a_stock_config(name, naming, tmp_path):
    theirs, cfg, x = stock(name)
    path = in_file(theirs, naming, tmp_path / 'weights.pth')
    ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=dict(type='Pretrained', checkpoint=path)))
    ours.init_weights()
    assert_equal(ours, theirs, x)


def test_prefix(tmp_path):
    theirs, cfg, x = stock('swin')
    torch.save({f'teacher.{key}': value for key, value in theirs.state_dict().items()}, tmp_path / 'both.pth')
    for prefix in ('teacher', 'teacher.'):
        start = dict(type='Pretrained', checkpoint=str(tmp_path / 'both.pth'), prefix=prefix)
        ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=start))
        ours.init_weights()
        assert_equal(ours, theirs, x)


def classifier(backbone, **settings):
    head = dict(type='LinearClsHead', num_classes=3, in_channels=24)
    neck = dict(type='GlobalAveragePooling')
    return dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head, **settings)


def runner(model, tmp_path, **settings):
    return Runner(model=model, work_dir=str(tmp_path / 'work'), default_scope='mmpretrain', **settings)


@pytest.mark.parametrize('naming', ['timm', 'original', 'mmdet'])
def test_load_from(naming, tmp_path):
    """As mmengine's runner loads it, in the libraries' own scripts."""
    theirs, cfg, x = stock('swin')
    path = in_file(theirs, naming, tmp_path / 'weights.pth')
    model = runner(classifier(dict(cfg, plugs=GAB)), tmp_path, load_from=path)
    model.load_or_resume()
    assert_equal(model.model.backbone, theirs, x)


@pytest.mark.parametrize('naming', ['timm', 'original', 'bare'])
def test_the_key_pretrained(naming, tmp_path):
    theirs, cfg, x = stock('vit')
    path = in_file(theirs, naming, tmp_path / 'weights.pth')
    with DefaultScope.overwrite_default_scope('mmseg'):
        head = dict(type='FCNHead', in_channels=24, channels=8, num_classes=2, in_index=1)
        cfg = dict(type='EncoderDecoder', backbone=dict(cfg, plugs=GAB), decode_head=head, pretrained=path)
        model = MMSEG_MODELS.build(ConfigDict(cfg))
        model.init_weights()
    assert_equal(model.backbone, theirs, x)


def test_a_file_of_another_network_is_refused(tmp_path):
    _, cfg, _ = stock('swin')
    other = timm.create_model('resnet18', num_classes=3)
    torch.save(other.state_dict(), tmp_path / 'resnet.pth')
    path = str(tmp_path / 'resnet.pth')
    ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=dict(type='Pretrained', checkpoint=path)))
    with pytest.raises(ValueError, match=r'resnet\.pth: the keys .* match no known network'):
        ours.init_weights()
    with pytest.raises(ValueError, match=r'the checkpoint: the keys .* match no known network'):
        runner(classifier(cfg), tmp_path, load_from=path).load_or_resume()


def test_a_wider_network_with_another_plug_is_refused(tmp_path):
    """A tensor that the model has no place for does not hide those that do not fit."""
    _, cfg, _ = stock('swin')
    wider = MODELS.build(dict(cfg, embed_dims=2 * cfg['embed_dims'], plugs='cb(scaled=True)'))
    state = {f'backbone.{key}': value for key, value in wider.state_dict().items()}
    torch.save(dict(state_dict=state), tmp_path / 'wide.pth')
    with pytest.raises(ValueError, match=r'the checkpoint: (?s:.*)size mismatch for backbone'):
        runner(classifier(cfg), tmp_path, load_from=str(tmp_path / 'wide.pth')).load_or_resume()


def test_models_without_a_host_are_left_alone(tmp_path):
    model = MMPretrainSwin()
    torch.save(dict(weights=torch.zeros(1)), tmp_path / 'other.pth')
    load_checkpoint(model, str(tmp_path / 'other.pth'))
