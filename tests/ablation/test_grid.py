"""Grids: what is compared, what a cell is, and how plugs, keys and metrics are named. Nothing is trained."""

import hashlib
import json
import random
from pathlib import Path

import bad_inputs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_grid import make_grid
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmpretrain import evaluation
from mmpretrain.structures import DataSample

from vitplug.ablation import held
from vitplug.ablation.ablate_command import grid_content, main, parser, read_grid_and_folder
from vitplug.ablation.cells import (
    cell_config,
    content_hash,
    folder_name,
    plan_cells,
    read_cell_files,
    with_seed,
    write_cell,
    write_json,
)
from vitplug.ablation.checks import check_labels, chosen_margin
from vitplug.ablation.grid import (
    GridFile,
    baseline_of,
    is_grid_file,
    make_variants,
    read_grid_file,
    read_grid_json,
    seeds_of,
)
from vitplug.ablation.probe import count_steps, estimate
from vitplug.ablation.records import Grid, read_cells, read_grid
from vitplug.ablation.worker import cell_config as config_of_worker
from vitplug.config.keys import check_key
from vitplug.config.reading import read_config
from vitplug.plugs import ContextBroadcast
from vitplug.runs.metrics import choose_metric, greater_is_better

DIGITS = Path(__file__).parents[2] / 'configs' / 'digits'
VIT = str(DIGITS / 'vit-mini-p4_1xb32-14e_digits-32x32.py')
LR = 'optim_wrapper.optimizer.lr'


# --- plugs ---


def test_plugs_of_a_grid_may_be_texts_lists_and_objects():
    plugs = ['none', ['gab', dict(type='Refiner', expansion=2)], [ContextBroadcast(scaled=True, layers=[1])]]
    grid = GridFile(VIT, plugs=plugs, seeds=[0])
    assert grid.plugs == ['none', 'gab+refiner(expansion=2)', 'cb(layers=[1],scaled=True)']
    assert [v.cfg.model.backbone.plugs for v in make_variants(GridFile(**json.loads(json.dumps(grid.as_json()))))] == [
        [],
        [dict(type='GaussianAttentionBias'), dict(type='Refiner', expansion=2)],
        [dict(type='ContextBroadcast', layers=[1], scaled=True)],
    ]


@pytest.mark.parametrize('plug', [dict(type=ContextBroadcast), dict(type='Refiner', layers=range(2)), 3])
def test_plugs_of_a_grid_that_have_no_text(plug):
    with pytest.raises(ValueError, match='plugs'):
        GridFile(VIT, plugs=['none', [plug]])


# --- what a cell is ---


def hash_of(**changes):
    cfg = read_config(VIT, changes)
    return content_hash(with_seed(cfg, 0))


@pytest.fixture(scope='module')
def plain():
    return hash_of()


@pytest.mark.parametrize(
    'change',
    [
        {'train_dataloader.num_workers': 0, 'train_dataloader.persistent_workers': False},
        {'work_dir': 'elsewhere'},
        {'log_level': 'ERROR'},
        {'train_dataloader.dataset.data_root': '/another/machine/imagenet'},
        {'default_hooks.logger.interval': 1},
        {'default_hooks.checkpoint.max_keep_ckpts': 5},
        {'randomness.seed': 17},  # of the base; the cell's own wins
        {'test_dataloader.batch_size': 7},
        {'model.backbone.plugs': []},
        {'visualizer.vis_backends.0.save_dir': 'x'},
    ],
)
def test_hash_is_the_same_for(change, plain):
    assert hash_of(**change) == plain


@pytest.mark.parametrize(
    'change',
    [
        {LR: 1e-4},
        {'train_cfg.max_epochs': 15},
        {'train_dataloader.batch_size': 16},
        {'train_dataloader.dataset.data_root': 'data/others'},
        {'model.backbone.plugs': [dict(type='ContextBroadcast')]},
        {'model.backbone.drop_path_rate': 0.1},
        {'train_dataloader.dataset.pipeline.5.degrees': 13},
        {'param_scheduler.1.eta_min': 1e-6},
        {'default_hooks.non_finite.max_consecutive': 6},
        {'randomness.deterministic': True},
    ],
)
def test_hash_is_another_for(change, plain):
    assert hash_of(**change) != plain


def test_hash_is_another_for_another_seed(plain):
    assert content_hash(with_seed(read_config(VIT), 1)) != plain


def test_hash_is_that_of_the_sorted_json():
    """So it stays the same in another process, on another machine and in another version."""
    cfg = Config(dict(model=dict(type='A', x=[1, 2.5, None]), load_from='/a/b.pth', helper=1))
    content = {'load_from': 'b.pth', 'model': {'type': 'A', 'x': [1, 2.5, None]}}
    assert content_hash(cfg) == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@given(st.randoms(use_true_random=False))
def test_hash_does_not_depend_on_the_order_of_keys(order):
    nested = {'model': {'type': 'A', 'depth': 3, 'arch': {'heads': 2, 'dims': [1, 2]}}, 'train_cfg': {'max_epochs': 2}}
    assert content_hash(Config(shuffled(nested, order))) == content_hash(Config(nested))


def shuffled(node, order: random.Random):
    if not isinstance(node, dict):
        return node
    items = [(key, shuffled(child, order)) for key, child in node.items()]
    order.shuffle(items)
    return dict(items)


def test_folder_name_is_safe():
    assert folder_name("residual(alpha=0.25, layers='upper')", 3, 'a' * 64) == (
        'residual_alpha=0.25_layers=_upper_seed3_aaaaaaaaaa'
    )
    assert '/' not in folder_name('../../x', 0, 'b' * 64)


# --- variants ---


def test_every_combination_is_a_variant():
    grid = GridFile(VIT, axes={LR: [1e-3, 1e-4], 'train_cfg.max_epochs': [1, 2]}, plugs=['cb', 'none'], seeds=[4, 5])
    variants = make_variants(grid)
    labels = [variant.label for variant in variants]
    assert labels[:3] == [
        'cb, lr=0.001, max_epochs=1',
        'cb, lr=0.001, max_epochs=2',
        'cb, lr=0.0001, max_epochs=1',
    ]
    assert len(labels) == 8 and baseline_of(grid, labels) == 'none, lr=0.001, max_epochs=1'
    assert variants[5].cfg.train_cfg.max_epochs == 2 and variants[5].cfg.optim_wrapper.optimizer.lr == 1e-3
    assert variants[5].cfg.model.backbone.plugs == [] and variants[0].cfg.model.backbone.plugs[0].type[0] == 'C'


def test_labels_tell_axes_of_the_same_last_name_apart():
    grid = GridFile(VIT, axes={'train_dataloader.batch_size': [8], 'val_dataloader.batch_size': [100]})
    [variant] = make_variants(grid)
    assert variant.label == 'train_dataloader.batch_size=8, val_dataloader.batch_size=100'


def test_values_that_look_alike_are_numbered():
    rates = [dict(type='AdamW', lr=1e-3), dict(type='AdamW', lr=1e-4), dict(type='SGD', lr=0.1)]
    variants = make_variants(GridFile(VIT, axes={'optim_wrapper.optimizer': rates}))
    assert [one.label for one in variants] == ['optimizer=AdamW', 'optimizer=AdamW (2)', 'optimizer=SGD']


def test_seeds_and_values_may_be_ranges(tmp_path):
    """As numbers in grid.json, from which the grid goes on."""
    grid = GridFile(VIT, axes={'train_cfg.max_epochs': range(2, 4)}, seeds=range(3))
    write_json(tmp_path / 'grid.json', grid.as_json() | dict(metric='accuracy/top1'))
    again = read_grid_json(tmp_path)
    assert again.seeds == (0, 1, 2) and again.axes == {'train_cfg.max_epochs': [2, 3]}


def test_grid_without_plugs_and_axes_has_one_variant():
    [variant] = make_variants(GridFile(VIT))
    assert variant.label == 'base' and 'plugs' not in variant.cfg.model.backbone


def test_seeds_are_numbers_or_a_list():
    assert seeds_of('3') == (0, 1, 2) and seeds_of('3,1') == (3, 1) and seeds_of('7,') == (7,)
    for wrong in ('0', '-1', 'x', '', '1.5', '1000000000'):
        with pytest.raises(ValueError, match='seeds'):
            seeds_of(wrong)


def test_grid_file(tmp_path):
    (tmp_path / 'sub').mkdir()
    (tmp_path / 'base.py').write_text(f'_base_ = {VIT!r}\n')
    path = tmp_path / 'sub' / 'grid.py'
    path.write_text(
        "import math\nbase = '../base.py'\n_rates = [1e-3]\naxes = {'train_cfg.max_epochs': [1, 2]}\nseeds = 4\n"
    )
    assert is_grid_file(path) and not is_grid_file(Path(VIT))
    grid = read_grid_file(path)
    assert Path(grid.base) == tmp_path / 'base.py' and grid.seeds == (0, 1, 2, 3)
    assert [variant.label for variant in make_variants(grid)] == ['max_epochs=1', 'max_epochs=2']


def test_keys_that_a_class_takes_are_known():
    cfg = read_config(VIT)
    for key in (
        LR,
        'model.backbone.drop_path_rate',
        'train_cfg.val_begin',
        'param_scheduler.1.T_max',
        'model.head.topk',
    ):
        check_key(cfg, key, 'axes: ')
    for key in ('model.backbone.drop_pth', 'optim_wrapper.optimizer.learning_rate', 'param_scheduler.2.end', 'modell'):
        with pytest.raises(ValueError, match=rf'axes: {key}: .* has no '):
            check_key(cfg, key, 'axes: ')


# --- cells in a folder ---


def cells_of(out, write=True, **settings):
    cells = plan_cells(make_variants(GridFile(VIT, **settings)), settings.get('seeds', [0]), out)
    for cell in cells if write else ():
        cell.folder.mkdir(parents=True, exist_ok=True)
        write_cell(cell, '')
    return cells


def test_changed_axis_adds_cells_and_keeps_the_others(tmp_path):
    before = cells_of(tmp_path, plugs=['none', 'cb'], seeds=[0])
    lr = read_config(VIT).optim_wrapper.optimizer.lr
    after = cells_of(tmp_path, plugs=['none', 'cb', 'gab'], axes={LR: [lr, 1e-4]}, seeds=[0, 1])
    assert len(after) == 12 and len(read_cell_files(tmp_path)) == 12
    kept = {cell.variant.label: cell.folder for cell in after if cell.folder in {cell.folder for cell in before}}
    assert kept == {f'none, lr={lr}': before[0].folder, f'cb, lr={lr}': before[1].folder}
    labels = [cell.variant.label for cell in after if cell.seed == 0]
    found = read_cells(tmp_path, Grid(tuple(labels), labels[0], (0, 1), 'accuracy/top1', True))
    assert {cell.folder for cell in found} == {f'cells/{cell.folder.name}' for cell in after}


def test_cells_go_seed_by_seed(tmp_path):
    cells = cells_of(tmp_path, write=False, plugs=['none', 'cb'], seeds=[1, 0])
    assert [(cell.variant.label, cell.seed) for cell in cells] == [('none', 1), ('cb', 1), ('none', 0), ('cb', 0)]


def test_changed_base_is_another_grid_and_says_what_changed(tmp_path):
    cells_of(tmp_path, plugs=['none'], seeds=[0])
    with pytest.raises(ValueError, match=r'of another grid: none with seed 0 .*optimizer\.lr: .* -> 0\.5'):
        cells_of(tmp_path, plugs=['none'], seeds=[0], options={LR: 0.5})


ROOT_KEY = 'train_dataloader.dataset.data_root'


@pytest.fixture
def folds(tmp_path, monkeypatch):
    """Two folders of data of one name, with different files, and what planning knows of them."""
    monkeypatch.setattr(held, '_fingerprint', held._fingerprint.__wrapped__)  # files change within a test
    for number in range(2):
        folder = tmp_path / f'fold{number}' / 'data' / 'train' / 'zero'
        folder.mkdir(parents=True)
        (folder / f'{number}.png').write_bytes(b'x')
    return [str(tmp_path / f'fold{number}' / 'data') for number in range(2)]


def test_folds_of_one_name_are_two_variants(tmp_path, folds):
    cells = cells_of(tmp_path / 'out', axes={ROOT_KEY: folds}, seeds=[0])
    assert [cell.variant.label for cell in cells] == ['data_root=fold0/data', 'data_root=fold1/data']
    assert cells[0].folder != cells[1].folder
    assert [cell.folder for cell in cells_of(tmp_path / 'out', axes={ROOT_KEY: folds}, seeds=[0])] == [
        cell.folder for cell in cells
    ]
    Path(folds[1], 'train/zero/1.png').rename(Path(folds[1], 'train/zero/0.png'))
    with pytest.raises(ValueError, match=r'are alike \(only train_dataloader\.dataset\.data_root differs'):
        cells_of(tmp_path / 'other', axes={ROOT_KEY: folds}, seeds=[0])


def test_results_of_one_fold_are_not_those_of_another(tmp_path, folds):
    [cell] = cells_of(tmp_path / 'out', options={ROOT_KEY: folds[0]}, seeds=[0])
    (cell.folder / 'done.json').write_text('{"value": 1.0}')
    with pytest.raises(ValueError, match=r'of another grid: .*fold0\S+ -> \S+fold1\S+, which holds something else'):
        cells_of(tmp_path / 'out', options={ROOT_KEY: folds[1]}, seeds=[0])
    # Moved, with what it holds; the config of the finished cell stays what was trained.
    before = (cell.folder / 'config.py').read_text()
    Path(folds[0]).parent.rename(tmp_path / 'elsewhere')
    [moved] = cells_of(tmp_path / 'out', options={ROOT_KEY: str(tmp_path / 'elsewhere/data')}, seeds=[0])
    assert moved.folder == cell.folder and (cell.folder / 'config.py').read_text() == before


def test_data_that_change_in_place_keep_the_cell_and_what_it_was_trained_on(tmp_path, folds):
    [cell] = cells_of(tmp_path / 'out', options={ROOT_KEY: folds[0]}, seeds=[0])
    (cell.folder / 'done.json').write_text('{"value": 1.0}')
    before = (cell.folder / 'cell.json').read_text()
    Path(folds[0], 'train/zero/more.png').write_bytes(b'y')
    [again, new] = cells_of(tmp_path / 'out', options={ROOT_KEY: folds[0]}, seeds=[0, 1])
    assert again.folder == cell.folder and (cell.folder / 'cell.json').read_text() == before
    marks = [json.loads((one.folder / 'cell.json').read_text())['data'] for one in (again, new)]
    assert marks[0].keys() == marks[1].keys() and marks[0] != marks[1]


def test_checkpoints_of_one_name_are_two_variants(tmp_path):
    paths = [tmp_path / name / 'epoch_1.pth' for name in 'ab']
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    cells = cells_of(tmp_path / 'out', axes={'load_from': [str(path) for path in paths]}, seeds=[0])
    assert [cell.variant.label for cell in cells] == ['load_from=a/epoch_1.pth', 'load_from=b/epoch_1.pth']


def test_checkpoints_of_one_name_at_two_addresses_are_two_variants(tmp_path):
    addresses = [f'https://example.org/{name}/model.pth' for name in 'ab']
    cells = cells_of(tmp_path / 'out', axes={'load_from': addresses}, seeds=[0])
    assert len({cell.folder for cell in cells}) == 2
    # Another address under the same label is other weights.
    one = dict(options={'load_from': addresses[0]}, seeds=[0])
    [cell] = cells_of(tmp_path / 'one', **one)
    write_cell(cell, '')
    [same] = cells_of(tmp_path / 'one', **one)
    assert same.trained_on == cell.data
    with pytest.raises(ValueError, match=r'load_from: .*a/model\.pth -> .*b/model\.pth, which holds something else'):
        cells_of(tmp_path / 'one', options={'load_from': addresses[1]}, seeds=[0])


def test_half_a_record_of_a_finished_cell_is_named(tmp_path):
    [cell] = cells_of(tmp_path, seeds=[0])
    for text in ('', '{"metric"', '{}'):
        (cell.folder / 'done.json').write_text(text)
        with pytest.raises(ValueError, match=r'done\.json cannot be read .* move this file away, and the cell goes on'):
            cells_of(tmp_path, seeds=[0])


@pytest.mark.parametrize(
    'entries, said',
    [
        (dict(greater_is_better='no'), "greater_is_better = 'no': expected True or False"),
        (dict(metric=3), 'metric = 3: expected a text'),
        (dict(margin=0), 'margin = 0: expected a difference above 0'),
        (dict(margin='0.3'), "margin = '0.3': expected a difference above 0"),
        (dict(options=[1]), r'options = \[1\]: expected a dict'),
        (dict(keep='all'), "keep = 'all': choose from none, last"),
        (dict(seeds='12'), "seeds = '12': expected a number"),
        (dict(seeds=range(200_000)), 'a grid of 200,000 cells is too large'),
        (dict(axes={LR: range(10**9)}), 'has 1,000,000,000 values: expected at most'),
    ],
)
def test_entries_of_a_grid_are_what_they_are_said_to_be(entries, said):
    with pytest.raises(ValueError, match=said):
        GridFile(VIT, **entries)


def test_config_of_a_cell_is_its_config(tmp_path):
    [cell] = cells_of(tmp_path, plugs=['residual(alpha=0.25)'], seeds=[3])
    (tmp_path / 'own.py').write_text(cell_config(cell))
    again = read_config(str(tmp_path / 'own.py'))
    assert content_hash(again)[:10] == cell.hash and again.randomness.seed == 3
    assert again.to_dict() == cell.cfg.to_dict()


def test_cell_without_workers_is_trained_as_a_training_is(tmp_path):
    """torch refuses settings of workers where there are none."""
    options = {'train_dataloader.num_workers': 0}
    [cell] = cells_of(tmp_path, options=options, seeds=[0])
    write_cell(cell, '')
    grid = GridFile(VIT, metric='accuracy/top1', baseline='base', greater_is_better=True)
    write_json(tmp_path / 'grid.json', grid_content(grid, [cell.variant], 'x'))
    assert 'persistent_workers' not in config_of_worker(cell.folder).train_dataloader


def test_config_of_a_cell_with_numbers_that_are_not_finite(tmp_path):
    base = tmp_path / 'base.py'
    base.write_text(f"_base_ = '{VIT}'\noptim_wrapper = dict(clip_grad=dict(max_norm=float('inf')))\n")
    [cell] = plan_cells(make_variants(GridFile(str(base), plugs=['none'], seeds=[0])), [0], tmp_path / 'out')
    (tmp_path / 'own.py').write_text(cell_config(cell))
    assert read_config(str(tmp_path / 'own.py')).optim_wrapper.clip_grad.max_norm == float('inf')


def test_grid_json_is_what_the_report_reads(tmp_path):
    grid = GridFile(
        VIT, plugs=['none', 'cb'], seeds=[0, 1], metric='accuracy/top1', greater_is_better=True, baseline='cb'
    )
    write_json(tmp_path / 'grid.json', grid_content(grid, make_variants(grid), 'python tools/ablate.py x'))
    found = read_grid(tmp_path)
    assert (found.labels, found.baseline, found.seeds) == (('none', 'cb'), 'cb', (0, 1))
    assert found.facts['base'] == VIT and found.facts['versions'].keys() == {'vitplug', 'torch', 'mmengine', 'python'}


def test_command_without_seeds_has_those_of_the_folder(tmp_path):
    def seeds(*argv):
        return list(read_grid_and_folder(parser().parse_args([VIT, '--out', str(tmp_path), *argv]))[0].seeds)

    assert seeds() == [0, 1, 2]
    write_json(tmp_path / 'grid.json', dict(base=VIT, metric='accuracy/top1', seeds=[0, 1, 2, 3]))
    assert seeds() == [0, 1, 2, 3] and seeds('--seeds', '2') == [0, 1]


def test_command_without_plugs_has_those_of_the_folder(tmp_path):
    def variants(*argv):
        grid = read_grid_and_folder(parser().parse_args([VIT, '--out', str(tmp_path), *argv]))[0]
        return grid.plugs and list(grid.plugs), grid.baseline

    assert variants() == (None, None)
    before = dict(base=VIT, metric='accuracy/top1', seeds=[0], plugs=['none', 'gab', 'cb'], baseline='gab')
    write_json(tmp_path / 'grid.json', before)
    assert variants() == (['none', 'gab', 'cb'], 'gab')
    assert variants('--plugs', 'none', 'gab') == (['none', 'gab'], 'gab')
    assert variants('--plugs', 'none', 'cb') == (['none', 'cb'], None)


def test_variants_with_results_stay_in_the_grid(tmp_path):
    """Fewer comparisons would make the same differences more certain."""
    folder = make_grid(tmp_path / 'grid', labels=('none', 'cb', 'gab'))
    check_labels(folder, ['none', 'cb', 'gab', 'residual'])
    with pytest.raises(ValueError, match='has finished cells of gab, which the grid has no more'):
        check_labels(folder, ['none', 'cb'])
    for done in folder.glob('cells/gab_*/done.json'):
        done.unlink()
    check_labels(folder, ['none', 'cb'])


def test_margin_is_chosen_before_the_first_cell(tmp_path):
    assert (
        chosen_margin(tmp_path, 'accuracy/top1', None) == 0.3 and chosen_margin(tmp_path, 'coco/segm_mAP', 1.0) == 1.0
    )
    assert chosen_margin(tmp_path, 'mine/score', None) is None
    write_json(tmp_path / 'grid.json', dict(base=VIT, metric='accuracy/top1', margin=0.5))
    assert chosen_margin(tmp_path, 'accuracy/top1', None) == chosen_margin(tmp_path, 'accuracy/top1', 0.5) == 0.5
    with pytest.raises(ValueError, match=r'--margin 0.3: .* has 0.5'):
        chosen_margin(tmp_path, 'accuracy/top1', 0.3)
    write_json(tmp_path / 'grid.json', dict(base=VIT, metric='mine/score', margin=None))
    with pytest.raises(ValueError, match=r'--margin 0.3: .* has none'):
        chosen_margin(tmp_path, 'mine/score', 0.3)


# --- metrics ---


@pytest.mark.parametrize(
    'config, first, other',
    [
        (VIT, 'accuracy/top1', 'accuracy/top5'),
        (next(DIGITS.glob('vit-mini-p8_upernet_*.py')), 'mIoU', 'aAcc'),
        (next(DIGITS.glob('swin-mini-p4-w4_mask-rcnn_*.py')), 'coco/segm_mAP', 'coco/bbox_mAP_50'),
    ],
)
def test_metrics_of_a_config(config, first, other):
    cfg = read_config(str(config))
    assert choose_metric(cfg, None) == first and choose_metric(cfg, other) == other
    with pytest.raises(ValueError, match='no validation gives'):
        choose_metric(cfg, 'accuracy')


THRESHOLDS = (0.0, None, (0.3,), [None], (0.0, 0.5), [None, 0.25, 0.5])


@pytest.mark.parametrize('thrs', [dict(), *(dict(thrs=thrs) for thrs in THRESHOLDS)], ids=str)
@pytest.mark.parametrize(
    'settings',
    [
        dict(type='Accuracy', topk=(1, 2)),
        dict(type='Accuracy', topk=2, prefix='mine'),
        dict(type='SingleLabelMetric'),
        dict(type='SingleLabelMetric', average='micro', items=['f1-score', 'support']),
        dict(type='SingleLabelMetric', prefix='mine', items=('recall',)),
    ],
    ids=str,
)
def test_metrics_of_classification_are_those_of_mmpretrain(settings, thrs):
    settings = settings | thrs
    samples = [DataSample().set_gt_label(i % 3).set_pred_score(torch.eye(3)[i // 3]) for i in range(9)]
    kind = getattr(evaluation, settings['type'])
    evaluator = Evaluator(kind(**{key: value for key, value in settings.items() if key != 'type'}))
    evaluator.process(samples)
    reported = evaluator.evaluate(len(samples))
    cfg = Config(dict(val_evaluator=settings, val_dataloader=dict(batch_size=1)))
    assert choose_metric(cfg, None) in reported
    assert all(choose_metric(cfg, metric) == metric for metric in reported)
    with pytest.raises(ValueError, match='there are ') as error:
        choose_metric(cfg, 'other')
    named = str(error.value).partition('there are ')[2].partition(';')[0]
    assert set(named.split(', ')) == set(reported)


def test_metrics_of_each_class_cannot_be_compared():
    evaluator = dict(type='SingleLabelMetric', average=None)
    cfg = Config(dict(val_evaluator=evaluator, val_dataloader=dict(batch_size=1)))
    for metric in (None, 'single-label/precision_classwise'):
        with pytest.raises(ValueError, match=r'SingleLabelMetric.*set an average'):
            choose_metric(cfg, metric)


def test_metrics_of_an_unknown_evaluator_have_to_be_named():
    cfg = Config(dict(val_evaluator=dict(type='MyMetric'), val_dataloader=dict(batch_size=1)))
    assert choose_metric(cfg, 'mine/score') == 'mine/score'
    with pytest.raises(ValueError, match='the metrics of MyMetric are not known: name one'):
        choose_metric(cfg, None)


@pytest.mark.parametrize(
    ('metrics', 'greater'),
    [
        (
            (
                'val/Loss',
                'perplexity',
                'crowd_human/mMR',
                'rmse',
                'abs_rel',
                'silog',
                'mAE',
                'top1_err',
                'fpr95_recall',
                'iou_dist',
            ),
            False,
        ),
        (
            ('accuracy/top1', 'mIoU', 'mDice', 'coco/segm_mAP_50', 'lvis/bbox_AP', 'coco/AR@100', 'coco_panoptic/PQ'),
            True,
        ),
        (('single-label/f1-score', 'multi-label/precision', 'aAcc', 'retrieval/Recall@1'), True),
    ],
)
def test_direction_of_metrics(metrics, greater):
    assert {greater_is_better(metric) for metric in metrics} == {greater}


def test_metric_whose_name_does_not_say_what_is_better():
    for metric in ('mine/score', 'mean', 'grasp', 'tokens'):
        with pytest.raises(ValueError, match=f"'{metric}' does not say .* --better greater or --better smaller"):
            greater_is_better(metric)
    options = parser().parse_args([VIT, '--better', 'smaller'])
    assert read_grid_and_folder(options)[0].greater_is_better is False


@pytest.mark.parametrize(
    ('line', 'said'),
    [
        ('DIR --report --out x --seeds 2', '--seeds, --out: without effect beside --report'),
        ('DIR --mechanisms --plugs cb', '--plugs: without effect beside --mechanisms'),
        ('DIR --across x --report', '--report: without effect beside --across'),
        ('c.py --dry-run --from-report f', '--from-report: without effect beside --dry-run'),
    ],
)
def test_options_without_effect(line, said, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(line.split())
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    'loop, expected',
    [
        (dict(max_epochs=14, val_interval=7), (70, 2)),
        (dict(max_epochs=5, val_interval=2), (25, 3)),
        (dict(max_iters=22, val_interval=8), (22, 3)),
        (dict(max_epochs=4, val_begin=3), (20, 2)),
    ],
)
def test_steps_of_a_training(loop, expected):
    assert count_steps(loop, batches=5) == expected


def test_time_of_a_loader_without_batches_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(bad_inputs.prepare(tmp_path / 'row'))
    cfg = read_config('tiny.py')
    cfg.train_dataloader |= dict(batch_size=1000, drop_last=True)
    with pytest.raises(ValueError, match=r'train_dataloader gives no batch: it has \d+ images'):
        estimate(cfg)


@pytest.mark.integration
def test_dry_run_writes_nothing(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'row')
    outcome = bad_inputs.run('ablate.py tiny.py --plugs none gab --seeds 2 --out grid --dry-run', folder)
    assert outcome.status == 0, outcome.text
    assert '4 cells in grid, compared by accuracy/top1 with none' in outcome.out
    assert not (folder / 'grid').exists()
