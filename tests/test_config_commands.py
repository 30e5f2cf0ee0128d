"""The commands `config`, `diff` and `flops`, and the image size of a config."""

from pathlib import Path

import pytest
from mmengine.config import Config

from vitplug.config.image_size import read_image_size
from vitplug.config.printing import print_config, print_difference
from vitplug.lab.costs import get_flops

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'
BASE = CONFIGS / 'digits/vit-mini-p4_1xb32-14e_digits-32x32.py'
REFINER = CONFIGS / 'digits/vit-mini-p4-refiner_1xb32-14e_digits-32x32.py'
STOCK_SEGMENTOR = 'mmseg::vit/vit_deit-s16_upernet_8xb2-160k_ade20k-512x512.py'
SIZES = {
    'digits/vit-mini-p4_1xb32-14e_digits-32x32.py': (1, 32, 32),
    'context_broadcast/deit-ti-p16_8xb128-300e_in1k.py': (3, 224, 224),
    'context_broadcast/deit-ti-p16_upernet_8xb2-160k_ade20k-512x512.py': (3, 512, 512),
    'gaussian_bias/swin-s-p4-w7-gab_mask-rcnn_8xb2-ms-crop-36e_coco.py': (3, 800, 1344),
    'vitdet/vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py': (3, 1024, 1024),
}


def line_of(text, start):
    """The cells of the line that begins with a word."""
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line.split()


# --- image size ---


@pytest.mark.parametrize('name', SIZES)
def test_image_size_of_a_config(name):
    assert read_image_size(Config.fromfile(CONFIGS / name)) == SIZES[name]


@pytest.mark.parametrize('shape', [[0], [32, -1], [1, 2, 3], []])
def test_bad_image_size_is_named(shape):
    with pytest.raises(ValueError, match='--shape'):
        read_image_size(Config.fromfile(BASE), shape)


@pytest.mark.parametrize('step', [dict(type='Pad', size_divisor=32), dict(type='Resize', scale_factor=0.5)])
def test_steps_without_a_size_are_passed_over(step):
    pipeline = [dict(type='Resize', scale=(64, 48)), step]
    cfg = Config(dict(model=dict(), test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    assert read_image_size(cfg) == (3, 48, 64) and read_image_size(cfg, [40]) == (3, 40, 40)
    with pytest.raises(ValueError, match='--shape HEIGHT WIDTH'):
        read_image_size(Config(dict(model=dict(backbone=dict(type='ResNet')))))


# --- commands ---


def test_costs_of_stock_configs(capsys):
    """Swin's stochastic depth reads numbers while it is built. Figures: Swin's paper, table 1, and mmpretrain's."""
    get_flops(['mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'])
    assert '28.288 M parameters, 4.491 G MACs' in capsys.readouterr().out
    for name in ('mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', STOCK_SEGMENTOR):
        get_flops([name, '--shape', '64'])
        assert 'M parameters' in capsys.readouterr().out


def test_commands_print_what_is_inherited_and_take_options_for_the_child(capsys):
    print_config([str(REFINER), '--cfg-options', 'model.backbone.with_cp=True'])
    out = capsys.readouterr().out
    assert "type='Refiner'" in out and 'with_cp=True' in out and 'train_dataloader' in out
    print_difference([str(BASE), str(BASE), '--cfg-options', 'model.backbone.with_cp=True'])
    changed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(('+ ', '- '))]
    assert any('with_cp=True' in line for line in changed) and len(changed) == 3
    print_difference([str(BASE), str(BASE), '--cfg-options', f'model.backbone.init_cfg.checkpoint={"a" * 200}'])
    assert 'a' * 200 in capsys.readouterr().out
    print_difference([str(BASE), str(REFINER)])
    assert "+            dict(type='Refiner')," in capsys.readouterr().out
    # Parts of a base have a note of their library, which the child's own have not.
    print_difference([STOCK_SEGMENTOR, STOCK_SEGMENTOR, '--cfg-options', 'val_evaluator.iou_metrics=["mDice"]'])
    changed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(('+ ', '- '))]
    assert changed and all('mIoU' in line or 'mDice' in line for line in changed)
    print_difference([str(BASE), str(BASE)])
    assert capsys.readouterr().out == 'no setting differs\n'


def test_get_flops_prints_parts_totals_and_what_was_counted(capsys):
    get_flops([str(REFINER)])
    out = capsys.readouterr().out
    parts = [line_of(out, part) for part in ('backbone ', 'neck', 'head', 'total')]
    for *counted, total in [[int(row[column].replace(',', '')) for row in parts] for column in (1, 2)]:
        assert sum(counted) == total
    assert line_of(out, 'backbone.plugs.refiner')[2] == '2,366,208'
    assert 'of an image of 32x32' in out and 'counted: backbone, neck and head' in out
