"""The commands `config`, `diff` and `flops`, and the image size of a config."""

from pathlib import Path

import pytest
from mmengine.config import Config

from vitplug.config.reading import read_config
from vitplug.lab.config_commands import count_groups, get_flops, print_config, print_difference, report_difference
from vitplug.lab.costs import build_model, count_costs
from vitplug.lab.image_size import read_image_size

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
BASE = CONFIGS / 'digits/vit-mini-p4_1xb32-14e_digits-32x32.py'
REFINER = CONFIGS / 'digits/vit-mini-p4-refiner_1xb32-14e_digits-32x32.py'
LAYER_DECAY = CONFIGS / 'vitdet/vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py'
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
    assert read_image_size(Config.fromfile(CONFIGS / name)).chw == SIZES[name]


@pytest.mark.parametrize('shape', [[0], [32, -1], [1, 2, 3], [], [10**20]])
def test_bad_image_size_is_named(shape):
    with pytest.raises(ValueError, match='--shape'):
        read_image_size(Config.fromfile(BASE), shape)


@pytest.mark.parametrize('step', [dict(type='Pad', size_divisor=32), dict(type='Resize', scale_factor=0.5)])
def test_steps_without_a_size_are_passed_over(step):
    pipeline = [dict(type='Resize', scale=(64, 48)), step]
    cfg = Config(dict(model=dict(), test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    assert read_image_size(cfg).chw == (3, 48, 64) and read_image_size(cfg, [40]).chw == (3, 40, 40)
    with pytest.raises(ValueError, match='--shape HEIGHT WIDTH'):
        read_image_size(Config(dict(model=dict(backbone=dict(type='ResNet')))))


# --- differences ---


def costs_of(cfg, shape=None):
    return count_costs(build_model(cfg), cfg.default_scope, read_image_size(cfg, shape).chw)


def test_report_of_an_added_plug():
    base, child = Config.fromfile(BASE), Config.fromfile(REFINER)
    text = report_difference(base, child)
    before, after = costs_of(base), costs_of(child)
    added = after.parameters['backbone.plugs.refiner']
    assert added > 0 and after.total_parameters - before.total_parameters == added
    parameters, macs = (part for part in text.split('\n\n') if part.startswith(('parameters\n', 'MACs of one image')))
    assert "+            dict(type='Refiner')," in text and '-            ' not in text.partition('BASE')[0]
    assert line_of(parameters, 'backbone.plugs.refiner') == ['backbone.plugs.refiner', '0', f'{added:,}', f'+{added:,}']
    assert line_of(parameters, 'total')[-1] == f'+{added:,}'
    assert line_of(macs, 'total')[-1] == f'+{after.macs["backbone.plugs.refiner"]:,}' and 'image of 32x32' in macs
    assert line_of(text, 'BASE ')[-1] == 'fused'
    assert 'fused but on blocks' in next(line for line in text.splitlines() if line.startswith('CHILD '))
    equal = report_difference(base, Config.fromfile(BASE))
    assert equal.startswith('no setting differs') and line_of(equal.partition('MACs')[0], 'total')[-1] == '+0'


def test_stock_backbone_is_one_row_beside_a_host():
    stock = 'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'
    text = report_difference(read_config(stock), read_config(stock, {'model.backbone.plugs': 'gab'}), shape=[224])
    parameters, macs = (line.split() for line in text.splitlines() if line.startswith('backbone '))
    assert parameters[1:] == ['27,519,354', '27,519,354', '+0'] and macs[3] == '+0'
    assert line_of(text, 'backbone.plugs.gab ')[1:] == ['0', '24', '+24']


def groups_of(cfg):
    return count_groups(cfg, build_model(cfg))


def test_groups_are_those_of_the_optimizer():
    cfg = Config.fromfile(BASE)
    cfg.optim_wrapper = dict(
        type='AmpOptimWrapper',
        optimizer=dict(type='AdamW', lr=0.25, weight_decay=0.5),
        paramwise_cfg=dict(custom_keys={'head': dict(lr_mult=0.5, decay_mult=0.0)}),
    )
    parameters = costs_of(cfg).parameters
    rest = parameters.total() - parameters['head']
    assert groups_of(cfg) == {'lr 0.25, weight decay 0.5': rest, 'lr 0.125, weight decay 0': parameters['head']}
    cfg.model.backbone.frozen_stages = 1
    assert groups_of(cfg)['frozen'] > 0 and sum(groups_of(cfg).values()) == parameters.total()
    cfg.optim_wrapper = None
    assert groups_of(cfg) == {}


def test_layer_decay_gives_one_rate_for_each_depth():
    assert len({name.partition(',')[0] for name in groups_of(Config.fromfile(LAYER_DECAY))}) == 14


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
    print_difference([str(BASE), str(BASE), '--cfg-options', 'model.backbone.with_cp=True', '--shape', '32'])
    out = capsys.readouterr().out
    changed = [line for line in out.partition('BASE ')[0].splitlines() if line.startswith(('+ ', '- '))]
    assert any('with_cp=True' in line for line in changed) and len(changed) == 3 and 'image of 32x32 (--shape)' in out


def test_get_flops_prints_parts_totals_and_what_was_counted(capsys):
    get_flops([str(REFINER), '--batch', '2'])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()[2:] if line.startswith(('backbone', 'neck', 'head'))]
    for column, total in enumerate(line_of(out, 'total')[1:], start=1):
        # Parts other than plugs have nothing in the last two columns.
        counted = [row[column] for row in rows if len(row) > column]
        assert sum(int(cell.replace(',', '')) for cell in counted) == int(total.replace(',', ''))
    assert 'images: 2 of 32x32' in out and 'counted: backbone, neck and head' in out


@pytest.mark.parametrize(
    ('command', 'argv', 'words'),
    [
        (print_config, ['nowhere.py'], 'no such config: nowhere.py'),
        (print_config, [str(BASE), '--cfg-options', 'model'], 'KEY=VALUE'),
        (print_difference, [str(BASE), 'nowhere.py'], 'no such config: nowhere.py'),
        (get_flops, [str(BASE), '--shape', '-3', '4'], '--shape -3 4'),
        (get_flops, [str(BASE), '--batch', '0'], '--batch 0'),
        (get_flops, [str(BASE), '--cfg-options', 'default_scope=mmnothing'], 'mmnothing'),
        (get_flops, [str(BASE), '--cfg-options', 'model.backbone.type=Nothing'], 'Nothing'),
    ],
)
def test_errors_are_one_line_with_status_2(command, argv, words, capsys):
    with pytest.raises(SystemExit) as end:
        command(argv)
    assert end.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert 'error: ' in last and words in last
