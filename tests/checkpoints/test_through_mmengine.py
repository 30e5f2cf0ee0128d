"""Files of other code bases through mmengine's own ``Pretrained``, ``load_from`` and ``pretrained``."""

import pytest
import timm
import torch
from cases import images, randomize
from mmdet.models.backbones.swin import SwinTransformer as MMDetSwin
from mmengine.config import Config, ConfigDict
from mmengine.registry import DefaultScope
from mmengine.runner import Runner, load_checkpoint
from mmpretrain.models import SwinTransformer as MMPretrainSwin
from mmpretrain.registry import MODELS
from mmseg.models.backbones.vit import VisionTransformer as MMSegViT
from mmseg.registry import MODELS as MMSEG_MODELS
from timm.models.swin_transformer import SwinTransformer as TimmSwin
from toy_training import ToyLoop

from vitplug.checkpoints import convert
from vitplug.runs.checkpoint_fit import load_for_inference

GAB = [dict(type='GaussianAttentionBias', amplitude=1e-6)]  # changes nothing, has parameters
SWIN = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4), strides=(4, 2), window_size=4, out_indices=(1,))
SWIN |= dict(drop_path_rate=0.0)
VIT = dict(img_size=32, patch_size=8, embed_dims=24, num_layers=3, num_heads=3, out_indices=(0, 2), final_norm=True)
VIT |= dict(patch_bias=True, norm_cfg=dict(type='LN', eps=1e-6))


def stock(name, naming, path):
    """A stock backbone, its weights in a file as timm or a library writes it, vitplug's config of it, and images."""
    if name == 'swin':
        sizes = dict(img_size=64, embed_dim=12, depths=(2, 2), num_heads=(2, 4), window_size=4, num_classes=0)
        of_timm, theirs = TimmSwin(**sizes), MMDetSwin(**SWIN)
        cfg, x = dict(type='vitplug.SwinTransformer', **SWIN), images(64, 48, dtype=torch.float32)
    else:
        sizes = dict(embed_dim=24, depth=3, num_heads=3, img_size=32, patch_size=8, num_classes=0)
        of_timm, theirs = timm.create_model('vit_tiny_patch16_224', **sizes), MMSegViT(**VIT)
        cfg, x = dict(type='vitplug.VisionTransformer', **VIT), images(32, 32, dtype=torch.float32)
    state = randomize(of_timm).state_dict()
    ours = {key.removeprefix('backbone.'): value for key, value in convert(state).state.items()}
    in_mmseg = {key.replace('attn.qkv.', 'attn.attn.in_proj_').replace('attn.proj', 'attn.attn.out_proj'): value
                for key, value in ours.items()} if name == 'vit' else ours  # fmt: skip
    theirs.load_state_dict(in_mmseg, strict=name == 'vit')
    content = {
        'timm': state,
        'whole model': dict(state_dict={f'backbone.{key}': value for key, value in in_mmseg.items()}, meta={}),
        'bare': dict(state_dict=in_mmseg, meta={}),
    }
    torch.save(content[naming], path)
    return theirs, cfg, x


def assert_equal(ours, theirs, x):
    ours.eval(), theirs.eval()
    with torch.no_grad():
        for got, expected in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize('naming', ['timm', 'whole model', 'bare'])
@pytest.mark.parametrize('name', ['swin', 'vit'])
def test_init_cfg_of_a_stock_config(name, naming, tmp_path):
    path = str(tmp_path / 'weights.pth')
    theirs, cfg, x = stock(name, naming, path)
    ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=dict(type='Pretrained', checkpoint=path)))
    ours.init_weights()
    assert_equal(ours, theirs, x)


def test_prefix(tmp_path):
    path = str(tmp_path / 'weights.pth')
    theirs, cfg, x = stock('swin', 'timm', path)
    torch.save({f'teacher.{key}': value for key, value in torch.load(path).items()}, path)
    start = dict(type='Pretrained', checkpoint=path, prefix='teacher')
    ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=start))
    ours.init_weights()
    assert_equal(ours, theirs, x)


def classifier(backbone, **settings):
    head = dict(type='LinearClsHead', num_classes=3, in_channels=24)
    neck = dict(type='GlobalAveragePooling')
    return dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head, **settings)


def runner(model, tmp_path, **settings):
    return Runner(model=model, work_dir=str(tmp_path / 'work'), default_scope='mmpretrain', **settings)


@pytest.mark.parametrize('naming', ['timm', 'whole model'])
def test_load_from(naming, tmp_path):
    """As mmengine's runner loads it, in the libraries' own scripts, and with an average, which reads state_dict."""
    path = str(tmp_path / 'weights.pth')
    theirs, cfg, x = stock('swin', naming, path)
    for hooks in ([], [dict(type='EMAHook'), dict(type='vitplug.CheckpointFitHook')]):
        model = runner(classifier(dict(cfg, plugs=GAB)), tmp_path, load_from=path, custom_hooks=hooks)
        model._train_loop = ToyLoop()
        model.call_hook('before_run')
        model.load_or_resume()
        assert_equal(model.model.backbone, theirs, x)


def test_the_key_pretrained(tmp_path):
    path = str(tmp_path / 'weights.pth')
    theirs, cfg, x = stock('vit', 'timm', path)
    with DefaultScope.overwrite_default_scope('mmseg'):
        head = dict(type='FCNHead', in_channels=24, channels=8, num_classes=2, in_index=1)
        cfg = dict(type='EncoderDecoder', backbone=dict(cfg, plugs=GAB), decode_head=head, pretrained=path)
        model = MMSEG_MODELS.build(ConfigDict(cfg))
        model.init_weights()
    assert_equal(model.backbone, theirs, x)


def test_a_file_of_another_network_is_refused(tmp_path):
    torch.save(timm.create_model('resnet18', num_classes=3).state_dict(), tmp_path / 'resnet.pth')
    cfg, path = dict(type='vitplug.SwinTransformer', **SWIN), str(tmp_path / 'resnet.pth')
    ours = MODELS.build(dict(cfg, plugs=GAB, init_cfg=dict(type='Pretrained', checkpoint=path)))
    with pytest.raises(ValueError, match=r'resnet\.pth: the keys .* match no known network'):
        ours.init_weights()
    with pytest.raises(ValueError, match=r'the checkpoint: the keys .* match no known network'):
        runner(classifier(cfg), tmp_path, load_from=path).load_or_resume()


def test_settings_of_load_checkpoint(tmp_path):
    model, path = MODELS.build(classifier(dict(type='vitplug.SwinTransformer', **SWIN))), str(tmp_path / 'part.pth')
    torch.save({f'old-{key}': value for key, value in model.backbone.state_dict().items()}, path)
    with pytest.raises(ValueError, match=r'strict=True, and these are missing or unused: head\.fc\.weight, head'):
        load_checkpoint(model, path, strict=True, revise_keys=[('^old-', 'backbone.')])


def test_a_wider_network_with_another_plug_is_refused(tmp_path):
    """A tensor that the model has no place for does not hide those that do not fit."""
    cfg = dict(type='vitplug.SwinTransformer', **SWIN)
    wider = MODELS.build(dict(cfg, embed_dims=24, plugs='cb(scaled=True)'))
    torch.save(dict(state_dict={f'backbone.{k}': v for k, v in wider.state_dict().items()}), tmp_path / 'wide.pth')
    with pytest.raises(ValueError, match=r'the checkpoint: (?s:.*)size mismatch for patch_embed'):
        runner(classifier(cfg), tmp_path, load_from=str(tmp_path / 'wide.pth')).load_or_resume()


def test_plugs_that_the_model_lacks_are_refused(tmp_path):
    cfg, path = dict(type='vitplug.SwinTransformer', **SWIN), tmp_path / 'plugs.pth'
    torch.save(MODELS.build(classifier(dict(cfg, plugs=GAB))).state_dict(), path)
    with pytest.raises(ValueError, match=r'no place for 8 tensors of it: stages\.0\.blocks\.0\.plugs'):
        runner(classifier(cfg), tmp_path, load_from=str(path)).load_or_resume()


def test_other_heads_than_those_of_the_training_are_refused(tmp_path):
    """All tensors have their shapes."""
    model = MODELS.build(classifier(dict(type='vitplug.SwinTransformer', **SWIN)))
    meta = dict(cfg="model = dict(backbone=dict(type='vitplug.SwinTransformer', num_heads=(3, 4)))")
    torch.save(dict(state_dict=model.state_dict(), meta=meta), tmp_path / 'heads.pth')
    with pytest.raises(ValueError, match=r'was trained with num_heads=\[3, 4\], .* the backbone has \[2, 4\]'):
        load_checkpoint(model, str(tmp_path / 'heads.pth'))


def test_a_whole_model_without_a_config_has_the_grid_of_its_shape(tmp_path):
    """Of 2 x 8 tokens, which may be 4 x 4."""
    model = MODELS.build(dict(VIT, type='vitplug.VisionTransformer', img_size=(16, 64)))
    torch.save(model.state_dict(), tmp_path / 'wide.pth')
    load_checkpoint(model, str(tmp_path / 'wide.pth'))
    torch.save({key: value * torch.nan for key, value in model.state_dict().items()}, tmp_path / 'wide.pth')
    with pytest.raises(ValueError, match='has numbers that are not finite'):
        load_checkpoint(model, str(tmp_path / 'wide.pth'))


@pytest.mark.parametrize('with_cls_token', [True, False])
def test_a_test_reads_files_of_mmseg(with_cls_token):
    cfg, ours = dict(VIT, with_cls_token=with_cls_token), torch.nn.Module()
    theirs, ours.backbone = randomize(MMSegViT(**cfg)), MODELS.build(dict(cfg, type='vitplug.VisionTransformer'))
    state = {f'backbone.{key}': value for key, value in theirs.state_dict().items()}
    load_for_inference('mmseg.pth', ours, dict(state_dict=state), Config())
    assert_equal(ours.backbone, theirs, images(32, 32, dtype=torch.float32))


def test_models_without_a_host_are_left_alone(tmp_path):
    model = MMPretrainSwin()
    torch.save(dict(weights=torch.zeros(1)), tmp_path / 'other.pth')
    load_checkpoint(model, str(tmp_path / 'other.pth'))
