"""The hosts take mmdet's and mmseg's arguments: the networks, names and groups of parameters of their own backbones."""

from copy import deepcopy

import mmdet.models.backbones as detection
import mmseg.models.backbones as segmentation
import pytest
import timm
import torch
from cases import images, randomize
from mmcv.cnn.bricks.drop import DropPath
from mmengine.optim import build_optim_wrapper
from stock_sweep import Row, compare, same_groups
from torch import nn

from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.checkpoints import load_pretrained
from vitplug.checkpoints.pretrained import load_content

SWIN = dict(embed_dims=12, depths=(2, 2, 1), num_heads=(1, 2, 3), strides=(4, 2, 2))
SWIN |= dict(window_size=4, out_indices=(0, 1, 2))
VIT = dict(embed_dims=24, num_layers=3, num_heads=3, img_size=(32, 40), patch_size=8)
SWINS = {
    'default': {},
    'no patch norm': dict(patch_norm=False, mlp_ratio=2, qk_scale=0.7, out_indices=(1, 2)),
    'other norms': dict(norm_cfg=dict(type='LN', eps=0.1), qkv_bias=False, strides=(4, 2, 1)),
    'other activation': dict(act_cfg=dict(type='ReLU')),
}
VITS = {
    'default': {},
    'patches': dict(patch_bias=True, patch_norm=True, norm_cfg=dict(type='LN', eps=0.1), num_fcs=3, patch_pad=0),
    'no class token': dict(with_cls_token=False, out_indices=(0, 2), final_norm=True, act_cfg=dict(type='ReLU')),
    'class token': dict(output_cls_token=True, out_indices=[0, 2], mlp_ratio=2),
    'size of a list': dict(img_size=(35,), pre_norm=False, norm_eval=True),
}


def pair(stock, settings):
    """The stock backbone with random weights, and the host that loaded its state dict."""
    theirs = randomize(stock(**deepcopy(settings)))
    host = VisionTransformer if 'Vision' in stock.__name__ else SwinTransformer
    ours = host(**deepcopy(settings))
    load_content(ours, theirs.state_dict(), 'their weights')
    for model in (theirs, ours):
        model.double().train(False)
    return theirs, ours


def flat(outputs):
    return [tensor for out in outputs for tensor in (out if isinstance(out, list | tuple) else [out])]


def check_outputs(theirs, ours, x, tolerance=1e-12):
    expected, got = flat(theirs(x)), flat(ours(x))
    assert [tuple(t.shape) for t in got] == [tuple(t.shape) for t in expected]
    for e, g in zip(expected, got, strict=True):
        assert (g - e).abs().max() <= tolerance * e.abs().max()


@pytest.mark.parametrize('library', [detection, segmentation], ids=['mmdet', 'mmseg'])
@pytest.mark.parametrize('variant', SWINS)
def test_swin(library, variant):
    theirs, ours = pair(library.SwinTransformer, {**SWIN, **SWINS[variant]})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for size in ((37, 71), (12, 20), (64, 48)):
        check_outputs(theirs, ours, images(*size))


def test_swin_with_absolute_positions():
    """Stock backbones take images of one size then."""
    settings = dict(SWIN, use_abs_pos_embed=True, pretrain_img_size=(34, 40))
    check_outputs(*pair(detection.SwinTransformer, settings), images(32, 40))


@pytest.mark.parametrize('variant', VITS)
def test_vit(variant):
    theirs, ours = pair(segmentation.VisionTransformer, {**VIT, **VITS[variant]})
    check_outputs(theirs, ours, images(32, 40) if 'size' not in variant else images(32, 32))
    if variant != 'patches':  # without padding, no size but whole patches
        # mmseg resizes its table in the type of the weights, mmpretrain and the host in float32.
        check_outputs(theirs, ours, images(37, 51), tolerance=1e-6)


def test_sweep():
    """docs/tools/stock_sweep.py on one config."""
    settings, row = dict(VIT, type='mmseg.VisionTransformer'), Row()
    compare(settings, row)
    assert row.loaded and row.difference < 1e-6
    keys = {'layers.1.attn': dict(lr_mult=0.5)}
    assert same_groups(settings, dict(optimizer=dict(type='SGD', lr=1.0), paramwise_cfg=dict(custom_keys=keys)))


def drop_rates(model):
    """The rates of all dropouts that do something, in order: of whole branches, then of single entries."""
    paths, entries = ([m for m in model.modules() if isinstance(m, kind)] for kind in (DropPath, nn.Dropout))
    return [[round(m.drop_prob, 6) for m in paths if m.drop_prob], [m.p for m in entries if m.p]]


def test_drop_rates_are_those_of_the_library():
    rates = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)
    theirs, ours = pair(segmentation.SwinTransformer, {**SWIN, **rates})
    of_maps = [0.2] * sum(SWIN['depths'])
    theirs_all = drop_rates(theirs)
    assert drop_rates(ours) == [theirs_all[0], [rate for rate in theirs_all[1] if rate != 0.2]]
    assert [block.attn.w_msa.attn_drop for block in ours.plugged_blocks()] == of_maps
    theirs, ours = pair(segmentation.VisionTransformer, {**VIT, **rates})
    assert drop_rates(ours) == drop_rates(theirs)  # no path of attention is dropped
    assert [block.attn.attn_drop for block in ours.plugged_blocks()] == [0.2] * 3


def test_released_files_load_completely(tmp_path):
    """DeiT's loses its bias, as in mmseg."""
    sizes = dict(embed_dim=24, depth=3, num_heads=3, img_size=(32, 40), patch_size=8, num_classes=0)
    torch.save(timm.create_model('deit_tiny_patch16_224', **sizes).state_dict(), tmp_path / 'deit.pth')
    coverage = load_pretrained(VisionTransformer(**VIT, with_cls_token=False), tmp_path / 'deit.pth')
    assert not coverage.missing
    assert sorted(coverage.unused) == ['cls_token', 'ln1.bias', 'ln1.weight', 'patch_embed.projection.bias']


# --- optimizers ---


class Model(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.neck = backbone, nn.Conv2d(4, 4, 1)


def settings_of(model, paramwise_cfg, **more):
    """Learning rate and weight decay of every parameter, by name."""
    wrapper = dict(optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.5), paramwise_cfg=paramwise_cfg, **more)
    groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)]: (g['lr'], g['weight_decay']) for g in groups for p in g['params']}
    assert sum(len(g['params']) for g in groups) == len(names)
    return found


KEYS = dict(
    absolute_pos_embed=dict(decay_mult=0.0),
    relative_position_bias_table=dict(decay_mult=0.0),
    norm=dict(decay_mult=0.0),
    backbone=dict(lr_mult=0.1, decay_mult=1.0),
)


@pytest.mark.parametrize('paramwise_cfg', [{}, dict(custom_keys=KEYS)], ids=['one group', 'keys'])
def test_plugs_have_no_weight_decay_unless_a_key_gives_them_one(paramwise_cfg):
    model = Model(SwinTransformer(**SWIN, plugs='gab+residual+rel-pos-bias+se(reduction=4)'))
    decays = {name: decay for name, (_, decay) in settings_of(model, paramwise_cfg).items()}
    of_plugs = {name: decay for name, decay in decays.items() if '.plugs.' in name}
    spared = {name for name in of_plugs if name.endswith(('gab_amplitude', 'gab_sigma', 'alpha', 'rel_pos_table'))}
    assert {name for name, decay in of_plugs.items() if not decay} == spared < of_plugs.keys()
    block = 'backbone.stages.0.blocks.0.'
    for key in ('gab_sigma', f'{block}plugs.gab.bias.gab_sigma', f'{block}plugs', block):
        keys = {key: dict(decay_mult=0.5), **paramwise_cfg.get('custom_keys', {})}
        decays = {name: decay for name, (_, decay) in settings_of(model, dict(custom_keys=keys)).items()}
        of_gab = {name: decay for name, decay in decays.items() if '.gab_' in name}
        assert of_gab == {name: 0.25 if key in name and key != block else 0 for name in of_gab}
