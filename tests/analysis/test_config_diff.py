"""What `print_config.py --diff` says of two configs, and of one."""

from pathlib import Path

import pytest
from mmengine.config import Config

from vitplug.analysis.config_commands import get_flops, print_config
from vitplug.analysis.config_diff import (
    ABSENT,
    changed_rows,
    changed_settings,
    find_consequences,
    flatten,
    report_difference,
)
from vitplug.analysis.image_size import read_image_size
from vitplug.config.reading import read_config

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
BASE = CONFIGS / 'digits/vit-mini-p4_1xb32-14e_digits-32x32.py'
REFINER = CONFIGS / 'digits/vit-mini-p4-refiner_1xb32-14e_digits-32x32.py'
LAYER_DECAY = CONFIGS / 'vitdet/vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py'
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


# --- settings ---


def test_keys_are_those_of_cfg_options():
    nested = dict(a=1, b=dict(c=[dict(d=2), dict(d=[3, 4])]), e={}, f=[])
    assert flatten(nested) == {'a': 1, 'b.c.0.d': 2, 'b.c.1.d': [3, 4], 'e': {}, 'f': []}


def test_changes_are_found_both_ways():
    base, child = Config(dict(a=1, b=dict(c=2), same=0)), Config(dict(b=dict(c=3, d=4), same=0))
    assert changed_settings(base, child) == {'a': (1, ABSENT), 'b.c': (2, 3), 'b.d': (ABSENT, 4)}


def test_stock_backbone_is_one_row_beside_a_host():
    stock = 'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'
    configs = read_config(stock), read_config(stock, {'model.backbone.plugs': 'gab'})
    text = report_difference(*configs, shape=[224])
    parameters, macs = (line.split() for line in text.splitlines() if line.startswith('backbone '))
    assert parameters[1:] == ['27,519,354', '27,519,354', '+0'] and macs[3] == '+0'
    assert line_of(text, 'backbone.plugs.gab ')[1:] == ['0', '24', '+24']


def test_a_part_of_another_type_is_one_row():
    def config(kind, **settings):
        return Config(dict(model=dict(backbone=dict(type=kind, **settings), neck=dict(type='A', a=1)), lr=1))

    base = config('Stock', stem=dict(type='S', width=8), depth=3, norm=dict(type='LN', eps=1), out=(1, 2), grids=[7, 7])
    child = config('Mine', plugs=[dict(type='P', a=1)])
    child.model.neck.a, child.head = 2, dict(type='H', **dict.fromkeys('abcde', 0))
    rows = changed_rows(base, child)
    assert rows == {
        'model.backbone': ("type 'Stock'", "type 'Mine' (10 settings)"),
        'model.neck.a': ('1', '2'),
        'head': (ABSENT, "type 'H' (6 settings)"),
    }
    every = changed_rows(base, child, every=True)
    assert len(every) == 10 + 1 + 6 and every['model.backbone.norm.eps'] == ('1', ABSENT)
    # The optimizer's wrapper has a type by default.
    wrappers = dict(opt=dict.fromkeys('abcd', 0)), dict(type='W', opt=dict.fromkeys('efgh', 0))
    wrapped = [Config(dict(wrapper=wrapper)) for wrapper in wrappers]
    assert len(changed_rows(*wrapped)) == 9
    # Few settings of another type are rows: a stock backbone with plugs.
    plugged = changed_rows(config('Stock', depth=3), config('vitplug.Stock', depth=3, plugs=[dict(type='P')]))
    assert list(plugged) == ['model.backbone.type', 'model.backbone.plugs.0.type']


@pytest.mark.parametrize('name', SIZES)
def test_image_size_is_that_of_the_data(name):
    assert read_image_size(Config.fromfile(CONFIGS / name)).chw == SIZES[name]


def test_image_size_of_the_command_line_wins():
    cfg = Config.fromfile(BASE)
    assert read_image_size(cfg, [48]).chw == (1, 48, 48)
    assert read_image_size(cfg, [40, 64]).chw == (1, 40, 64)


@pytest.mark.parametrize('shape', [[0], [32, -1], [1, 2, 3], [], [10**20]])
def test_bad_image_size_is_named(shape):
    with pytest.raises(ValueError, match='--shape'):
        read_image_size(Config.fromfile(BASE), shape)


@pytest.mark.parametrize('step', [dict(type='Pad', size_divisor=32), dict(type='Resize', scale_factor=0.5)])
def test_steps_without_a_size_are_passed_over(step):
    pipeline = [dict(type='Resize', scale=(64, 48)), step]
    cfg = Config(dict(model=dict(), test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    assert read_image_size(cfg).chw == (3, 48, 64) and read_image_size(cfg, [40]).chw == (3, 40, 40)


def test_config_without_any_size_asks_for_one():
    with pytest.raises(ValueError, match='--shape HEIGHT WIDTH'):
        read_image_size(Config(dict(model=dict(backbone=dict(type='ResNet')))))


# --- consequences ---


def test_report_of_an_added_plug():
    base, child = Config.fromfile(BASE), Config.fromfile(REFINER)
    text = report_difference(base, child)
    before, after = find_consequences(base), find_consequences(child)
    added = after.costs.parameters['backbone.plugs.refiner']
    assert added > 0 and after.costs.total_parameters - before.costs.total_parameters == added
    parameters, macs = (part for part in text.split('\n\n') if part.startswith(('parameters\n', 'MACs of one image')))
    assert line_of(text, 'model.backbone.plugs.0.type') == ['model.backbone.plugs.0.type', ABSENT, "'Refiner'"]
    assert line_of(parameters, 'backbone.plugs.refiner') == ['backbone.plugs.refiner', '0', f'{added:,}', f'+{added:,}']
    assert line_of(parameters, 'total')[-1] == f'+{added:,}'
    assert line_of(macs, 'total')[-1] == f'+{after.costs.macs["backbone.plugs.refiner"]:,}'
    assert 'image of 32x32' in macs
    assert line_of(text, 'BASE ')[-1] == 'fused'
    assert 'fused but on blocks' in next(line for line in text.splitlines() if line.startswith('CHILD '))


def test_equal_configs_have_no_change_and_no_difference():
    cfg = Config.fromfile(BASE)
    text = report_difference(cfg, Config.fromfile(BASE))
    assert text.startswith('changed settings: none')
    assert line_of(text.partition('MACs')[0], 'total')[-1] == '+0'


def test_groups_are_those_of_the_optimizer():
    cfg = Config.fromfile(BASE)
    cfg.optim_wrapper = dict(
        type='AmpOptimWrapper',
        optimizer=dict(type='AdamW', lr=0.25, weight_decay=0.5),
        paramwise_cfg=dict(custom_keys={'head': dict(lr_mult=0.5, decay_mult=0.0)}),
    )
    found = find_consequences(cfg)
    head = found.costs.parameters['head']
    rest = found.costs.total_parameters - head
    assert found.groups == {'lr 0.25, weight decay 0.5': rest, 'lr 0.125, weight decay 0': head}
    assert found.memory['optim_wrapper.type'] == 'AmpOptimWrapper'


@pytest.mark.parametrize('paramwise', [{}, dict(norm_decay_mult=0.0)], ids=['one group', 'many groups'])
def test_frozen_parameters_are_no_trained_ones(paramwise):
    cfg = Config.fromfile(BASE)
    cfg.optim_wrapper = dict(optimizer=dict(type='AdamW', lr=0.25, weight_decay=0.5), paramwise_cfg=paramwise)
    cfg.model.backbone.frozen_stages = 1
    found = find_consequences(cfg)
    assert found.groups['frozen'] > 0
    assert sum(found.groups.values()) == found.costs.total_parameters


def test_config_without_optimizer_has_no_groups():
    cfg = Config.fromfile(BASE)
    cfg.optim_wrapper = None
    assert find_consequences(cfg).groups == {}


def test_layer_decay_gives_one_rate_for_each_depth():
    cfg = Config.fromfile(LAYER_DECAY)
    rates = {name.partition(',')[0] for name in find_consequences(cfg, [64]).groups}
    assert len(rates) == 14


# --- stock configs, by name ---


def test_costs_of_stock_configs(capsys):
    """Swin's stochastic depth reads numbers while it is built. Figures: Swin's paper, table 1, and mmpretrain's."""
    get_flops(['mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'])
    assert '28.288 M parameters, 4.491 G MACs' in capsys.readouterr().out
    for name in ('mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', STOCK_SEGMENTOR):
        get_flops([name, '--shape', '64'])
        assert 'M parameters' in capsys.readouterr().out


STOCK_SEGMENTOR = 'mmseg::vit/vit_deit-s16_upernet_8xb2-160k_ade20k-512x512.py'


def test_difference_to_a_stock_config(tmp_path, capsys):
    child = tmp_path / 'child.py'
    child.write_text(f"_base_ = '{STOCK_SEGMENTOR}'\nmodel = dict(backbone=dict(drop_path_rate=0.3))\n")
    print_config(['--diff', STOCK_SEGMENTOR, str(child), '--shape', '64'])
    out = capsys.readouterr().out
    changed = [line.split() for line in out.partition('\n\n')[0].splitlines()[3:]]
    assert changed == [['model.backbone.drop_path_rate', '0.1', '0.3']] and 'not one of vitplug' in out


def test_another_backbone_in_a_stock_config_is_one_row(tmp_path, capsys):
    child = tmp_path / 'child.py'
    backbone = "_delete_=True, type='vitplug.VisionTransformer', arch='deit-small', out_type='featmap'"
    model = f'pretrained=None, backbone=dict({backbone}, out_indices=[2, 5, 8, 11])'
    child.write_text(f"_base_ = '{STOCK_SEGMENTOR}'\nmodel = dict({model})\n")
    command = ['--diff', STOCK_SEGMENTOR, str(child), '--shape', '64']
    print_config(command)
    few = capsys.readouterr().out.partition('\n\n')[0].splitlines()[3:]
    assert len(few) == 3 and few[1].startswith('model.backbone ') and few[2].endswith('--all shows its settings')
    print_config([*command, '--all'])
    every = capsys.readouterr().out.partition('\n\n')[0].splitlines()[3:]
    assert len(every) > 12 and f'({len(every) - 1} settings)' in few[1], every


# --- commands ---


def test_print_config_prints_what_is_inherited(capsys):
    print_config([str(REFINER), '--cfg-options', 'model.backbone.with_cp=True'])
    out = capsys.readouterr().out
    assert "type='Refiner'" in out and 'with_cp=True' in out and 'train_dataloader' in out


def test_options_of_a_comparison_are_the_childs(capsys):
    print_config(['--diff', str(BASE), str(BASE), '--cfg-options', 'model.backbone.with_cp=True', '--shape', '32'])
    out = capsys.readouterr().out
    changed = out.partition('\n\n')[0].splitlines()[3:]
    assert [line.split() for line in changed] == [['model.backbone.with_cp', ABSENT, 'True']]
    assert 'image of 32x32 (--shape)' in out


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
        (print_config, [], '--diff BASE CHILD'),
        (print_config, [str(BASE), '--diff', str(BASE), str(BASE)], '--diff BASE CHILD'),
        (print_config, [str(BASE), '--all'], '--all: a config is always printed with all settings'),
        (print_config, ['nowhere.py'], 'no such config: nowhere.py'),
        (print_config, ['--diff', str(BASE), 'nowhere.py'], 'no such config: nowhere.py'),
        (print_config, [str(BASE), '--cfg-options', 'model'], 'KEY=VALUE'),
        (
            print_config,
            [str(REFINER), '--cfg-options', 'model.backbone.plugs.9.type=1'],
            "has no '9' in model.backbone.plugs",
        ),
        (get_flops, [str(BASE), '--shape', '-3', '4'], '--shape -3 4'),
        (get_flops, [str(BASE), '--shape', '2'], '2'),
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


def test_broken_config_is_named(tmp_path, capsys):
    path = tmp_path / 'broken.py'
    path.write_text('model = dict(')
    with pytest.raises(SystemExit):
        get_flops([str(path)])
    assert 'broken.py' in capsys.readouterr().err
