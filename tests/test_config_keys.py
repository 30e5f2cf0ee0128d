"""A slip in a config, or in a setting of the command line, is refused with the name that it may be meant to be."""

from pathlib import Path

import pytest
from cases import vit
from mmengine.model import BaseModule

from vitplug.config.reading import PLUGS_KEY, read_config

CONFIGS = Path(__file__).parents[1] / 'configs'
BASE = CONFIGS / 'digits' / 'vit-mini-p4_1xb32-14e_digits-32x32.py'

SLIPS = {
    'train_dataloder = dict(batch_size=8)': "train_dataloder: nothing reads it; did you mean 'train_dataloader'",
    'optim_wrapper = dict(paramwise_cfg=dict(norm_decay_multt=0.0))': (
        "optim_wrapper.paramwise_cfg.norm_decay_multt: nothing reads it; did you mean 'norm_decay_mult'"
    ),
    'auto_scale_lr = dict(base_batchsize=8)': "did you mean 'base_batch_size'",
    'env_cfg = dict(cudnn_benchmrk=True)': "env_cfg.cudnn_benchmrk: nothing reads it; did you mean 'cudnn_benchmark'",
}


@pytest.mark.parametrize('slip', SLIPS)
def test_slips_in_a_file(tmp_path, slip):
    path = tmp_path / 'child.py'
    path.write_text(f"_base_ = '{BASE}'\n{slip}\n")
    with pytest.raises(ValueError, match=SLIPS[slip]):
        read_config(str(path))


def test_written_config_keeps_its_helpers(tmp_path):
    """mmengine's own file of a run has all names, the helpers of its bases among them, and no use of them."""
    path = tmp_path / 'config.py'
    path.write_text(read_config('mmpretrain::vision_transformer/vit-base-p16_32xb128-mae_in1k.py').pretty_text)
    read_config(str(path))


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'model.backbone.arch.num_layer': 3}, "no 'num_layer' in model.backbone.arch; did you mean 'num_layers'"),
        ({'custom_hook': []}, "did you mean 'custom_hooks'"),
        ({'seed': 3}, "nothing reads 'seed' after"),
        # Before: plugs={'0': ...} of a backbone without them.
        ({f'{PLUGS_KEY}.0.type': 'X'}, r'.* has no plugs: name them first, model\.backbone\.plugs='),
        (
            {f'{PLUGS_KEY}.0.sigm': 3, PLUGS_KEY: 'gab(sigma=2)'},
            r"no 'sigm' in model\.backbone\.plugs\.0; did you mean 'sigma'",
        ),
    ],
)
def test_slips_on_the_command_line(settings, message):
    with pytest.raises(ValueError, match=f'{next(iter(settings))}: .*{message}'):
        read_config(str(BASE), settings)


def test_new_settings_that_something_reads():
    hooks = {'default_hooks.stop.type': 'EarlyStoppingHook', 'default_hooks.stop.monitor': 'accuracy/top1'}
    others = {'model.backbone.init_cfg.type': 'Pretrained', 'env_cfg.mp_cfg.mp_start_method': 'spawn'}
    read_config(str(BASE), hooks | others | {'param_scheduler.0.end': 3, 'custom_hooks.0.type': 'EMAHook'})


def test_helpers_have_been_used(tmp_path):
    path = tmp_path / 'child.py'
    path.write_text(f"_base_ = '{BASE}'\nepochs = 3\ntrain_cfg = dict(max_epochs=epochs)\n")
    with pytest.raises(ValueError, match=r"--cfg-options epochs: nothing reads 'epochs' after .*child\.py"):
        read_config(str(path), {'epochs': 5})


def test_slip_in_an_architecture():
    arch = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=48)
    with pytest.raises(ValueError, match="arch: nothing reads 'num_layer'; did you mean 'num_layers'"):
        vit(arch=arch | dict(num_layer=3))


STOCK = {
    'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py': 'vitplug.SwinTransformer',
    'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py': 'vitplug.SwinTransformer',
    'mmseg::vit/vit_vit-b16_mln_upernet_8xb2-80k_ade20k-512x512.py': 'vitplug.VisionTransformer',
}


@pytest.mark.parametrize('base', STOCK)
def test_plugs_make_a_stock_backbone_a_host(base, tmp_path):
    """On the command line and in a file."""
    stock = read_config(base).model.backbone
    (tmp_path / 'a.py').write_text(f"_base_ = {base!r}\nmodel = dict(backbone=dict(plugs='gab(sigma=3)'))\n")
    read = read_config(base, {PLUGS_KEY: 'gab', f'{PLUGS_KEY}.0.sigma': 3}), read_config(str(tmp_path / 'a.py'))
    for backbone in (cfg.model.backbone for cfg in read):
        assert backbone.pop('type') == STOCK[base] and stock.type in STOCK[base]
        assert backbone.pop('plugs') == [dict(type='GaussianAttentionBias', sigma=3)]
        assert backbone == {key: value for key, value in stock.items() if key != 'type'}


class Handing(BaseModule):
    """A backbone that hands plugs on."""

    def __init__(self, **settings):
        super().__init__()


def test_backbone_of_a_file_may_take_plugs_among_others(tmp_path):
    (path := tmp_path / 'a.py').write_text(f"model = dict(backbone=dict(type='{__name__}.Handing', plugs='cb'))\n")
    assert read_config(str(path)).model.backbone.plugs == [dict(type='ContextBroadcast')]
