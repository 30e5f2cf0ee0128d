"""Ablations: what a cell is, trainings that fail, are killed or go on, and the tables of what they have recorded."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from scipy import stats
from small_models import small_digits

from vitplug.config.reading import read_config
from vitplug.lab.ablate import command, engines, report
from vitplug.lab.ablate.pictures import WIDEST, curves_picture, forest_picture, wrapped
from vitplug.lab.ablate.plan import greater_is_better, make_variants
from vitplug.lab.cells import CELL, DONE, GRID, Cell, _hash, content_hash, make_cell
from vitplug.runs.hooks.paired_weights import PairedWeightsHook

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / 'configs' / 'digits' / 'vit-mini-p4_1xb32-14e_digits-32x32.py'
TOP1, TOP5 = 'accuracy/top1', 'accuracy/top5'
LABELS = ('none', 'gab(sigma=2.0,per_head=True)+cb(scaled=True)')
# What stands for a training: it writes a record of two validations, and behaves as its name says.
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
if 'fails' in folder.name: sys.exit('error: no such data')
if 'waits' in folder.name:
    (folder / 'pid').write_text(str(os.getpid()))
    time.sleep(60)
here = folder / '1' / 'vis_data'
here.mkdir(parents=True)
lines = [dict(step=step, **{'accuracy/top1': 80.0 + step}) for step in (1, 2)]
(here / 'scalars.json').write_text(''.join(json.dumps(line) + chr(10) for line in lines))
"""


class ToyCell(Cell):
    @property
    def command(self):
        return [sys.executable, '-c', PROGRAM, str(self.folder)]


def cell_in(folder: Path, name: str) -> ToyCell:
    (folder / name).mkdir(parents=True)
    return ToyCell(name, 0, folder / name)


# --- what a cell is ---


def digits_hash(**options) -> str:
    _hash.cache_clear()
    return content_hash(read_config(str(DIGITS), options))


def test_hash_names_what_results_depend_on(tmp_path, monkeypatch):
    data, moved = tmp_path / 'data', tmp_path / 'moved'
    image = Path('imagenet', 'train', '1.png')
    (data / image).parent.mkdir(parents=True)
    (data / image).write_bytes(b'1')
    monkeypatch.setenv('VITPLUG_DIGITS', str(data))
    reference = digits_hash()
    assert digits_hash(**{'train_dataloader.num_workers': 7, 'work_dir': 'x'}) == reference
    assert digits_hash(**{'optim_wrapper.optimizer.lr': 0.5}) != reference
    shutil.copytree(data, moved)
    monkeypatch.setenv('VITPLUG_DIGITS', str(moved))
    assert digits_hash() == reference
    (moved / image).write_bytes(b'2')  # of the same name and size
    assert digits_hash() != reference


@pytest.mark.parametrize('module', ['own_plugs.py', 'own_plugs/heads.py'])
def test_hash_has_the_code_of_custom_imports(module, tmp_path, monkeypatch):
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text('NUMBER = 1')
    monkeypatch.syspath_prepend(tmp_path)
    imported = Config(dict(model=dict(type='A'), custom_imports=dict(imports=['own_plugs'])))
    named = Config(dict(model=dict(type='A', plugs=[dict(type='own_plugs.Mixed')])))
    references = [content_hash(cfg) for cfg in (imported, named)]
    assert content_hash(imported) == references[0] != content_hash(Config(dict(model=dict(type='A'))))
    path.write_text('NUMBER = 2')
    assert not {*references} & {content_hash(imported), content_hash(named)}


def test_a_cell_notes_all_code_that_has_trained_it(tmp_path):
    """Not that of the call which only wrote it."""
    cfg = read_config(str(DIGITS))
    codes, cell = [], make_cell('a', cfg, 0, tmp_path, 1)
    for begun in (False, True):
        note = json.loads((cell.folder / 'cell.json').read_text())
        (cell.folder / 'cell.json').write_text(json.dumps(note | dict(code='before')))
        (cell.folder / '1' / 'vis_data').mkdir(parents=True) if begun else None
        codes.append(make_cell('a', cfg, 0, tmp_path, 1).code)
    assert codes == [cell.code, f'before+{cell.code}']
    cfg.train_dataloader.num_workers = 0  # which the next call gives to a cell that is not done
    assert make_cell('a', cfg, 0, tmp_path, 1) and 'num_workers=0' in (cell.folder / 'config.py').read_text()


def configs_in(folder: Path) -> list[str]:
    """Two children of one name with other rates."""
    for rate in (0.1, 0.2):
        (folder / str(rate)).mkdir(parents=True)
        text = f"_base_ = '{DIGITS}'\noptim_wrapper = dict(optimizer=dict(lr={rate}))\n"
        (folder / str(rate) / 'vit.py').write_text(text)
    return [str(path) for path in sorted(folder.glob('*/vit.py'))]


def test_seeds_and_variants_have_folders_of_their_own(tmp_path):
    names = ['plain', 'GAB', 'plain, fast', 'GAB, fast']
    variants = make_variants(configs_in(tmp_path), ['none', 'gab'], names)
    assert [*variants] == names
    assert [cfg.optim_wrapper.optimizer.lr for cfg in variants.values()] == [0.1, 0.1, 0.2, 0.2]
    folders = [make_cell(*one, seed, tmp_path, 1).folder for one in variants.items() for seed in (0, 1)]
    assert len({*folders}) == 8
    assert [*make_variants([str(DIGITS)], ['none', 'gab + cb'], ['a', 'b'])] == ['none', 'gab+cb']
    assert [*make_variants([str(DIGITS), configs_in(tmp_path / 'cells')[0]])] == [DIGITS.stem, 'vit']


@pytest.mark.parametrize(
    ('plugs', 'names', 'said'),
    [
        ((), (), "two variants are called 'vit': leave one out, or tell them apart by --names"),
        ((), ['a', 'a'], "two variants are called 'a'"),
        ((), ['a'], '--names: got 1 for 2 variants; name each of them: vit; vit'),
        (['gabb'], ['a', 'b'], "'gabb' in 'gabb' is unknown"),
    ],
)
def test_wrong_variants_are_refused_by_name(plugs, names, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        make_variants(configs_in(tmp_path), plugs, names)


def test_metrics_say_which_values_are_better():
    assert greater_is_better(TOP1) and not greater_is_better('loss') and not greater_is_better('f1', 'less')
    with pytest.raises(ValueError, match="'single-label/f1-score' does not say which values are better: add --rule"):
        greater_is_better('single-label/f1-score')
    with pytest.raises(ValueError, match=r'--margin -1\.0: expected a difference above 0'):
        command.main([str(DIGITS), '--margin', '-1'])


# --- trainings ---


def test_cells_that_fail_are_noted_and_repeated_by_the_next_call(tmp_path):
    cells = [cell_in(tmp_path, name) for name in ('a', 'fails', 'b')]
    engines.train(cells, jobs=2, told=lambda text: None)
    assert [cell.is_done for cell in cells] == [True, False, True]
    assert cells[1].last_line == 'error: no such data'
    assert cells[0].curve(TOP1) == {1: 81.0, 2: 82.0}
    said = []
    engines.train(cells, jobs=1, told=said.append)
    assert len(said) == 1 and '1 of 1: fails, seed 0: error: no such data (exit status 1, see ' in said[0]


@pytest.mark.integration
def test_an_ablation_that_is_stopped_asks_its_trainings_to_save(tmp_path):
    cell = cell_in(tmp_path / 'cells', 'waits')
    program = (
        'import signal, sys; sys.path[:0] = sys.argv[2:]\n'
        'signal.signal(signal.SIGTERM, signal.default_int_handler)\n'
        'from pathlib import Path\nfrom test_ablate import ToyCell, engines\n'
        'engines.train([ToyCell("waits", 0, Path(sys.argv[1]))], 1)\n'
    )
    ours = subprocess.Popen([sys.executable, '-c', program, str(cell.folder), str(Path(__file__).parent), *sys.path])
    pid = int(wait_for(cell.folder / 'pid'))
    ours.terminate()
    assert ours.wait(timeout=30)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not cell.is_done


def wait_for(path: Path) -> str:
    for _ in range(1800):
        if path.is_file() and path.read_text():
            return path.read_text()
        time.sleep(0.1)
    raise AssertionError(f'{path} does not come')


@pytest.mark.integration
def test_jobs_of_submitit_train_cells(tmp_path):
    submitit = pytest.importorskip('submitit')
    cells = [cell_in(tmp_path, name) for name in ('a', 'fails')]
    executor = submitit.AutoExecutor(tmp_path / 'jobs', 'local')
    executor.update_parameters(timeout_min=2)
    engines.train(cells, jobs=2, told=lambda text: None, executor=executor)
    assert cells[0].is_done and not cells[1].is_done and cells[1].last_line


@pytest.mark.integration
def test_grid_trains_goes_on_and_compares(tmp_path, tmp_path_factory, monkeypatch, capfd):
    digits = small_digits(tmp_path_factory, (40, 20), (1, 1))
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    out = tmp_path / 'grid'
    argv = [str(DIGITS), '--plugs', 'none', 'gab', '--names', 'plain', 'Gaussian', '--seeds', '1', '--out', str(out)]
    argv += ['--cfg-options', 'train_cfg.max_epochs=1']
    assert command.main(argv) == 0, capfd.readouterr()
    [first] = report.summarise(out)
    assert [variant.name for variant in first.variants] == ['plain', 'Gaussian']
    assert '2 of 2 cells done' in report.remarks(first)
    argv[argv.index('1')] = '2'
    assert command.main([*argv, '--print']) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if ' vitplug train ' in line]
    assert len(lines) == 2 and all('_seed1_' in line for line in lines)
    subprocess.run(lines[0], shell=True, check=True, capture_output=True)
    assert command.main([str(out)]) == 0
    assert '3 of 4 cells done' in capfd.readouterr().out
    assert report.summarise(out)[0].variants[0].values[0] == first.variants[0].values[0]


# --- tables ---


def folder_of(tmp_path: Path, seeds: int = 5, metrics=(TOP1, TOP5)) -> Path:
    """A grid whose cells are done, with made values."""
    names = []
    for label, effect in zip(LABELS, (0.0, 1.0), strict=True):
        for seed in range(seeds):
            name = f'{"gab" if effect else "none"}_seed{seed}_0'
            here = tmp_path / 'cells' / name / '1' / 'vis_data'
            here.mkdir(parents=True)
            noise = np.random.default_rng([seed, int(effect)]).normal(0, 0.1)
            values = {TOP1: 80 + seed + effect + noise, TOP5: 95 - effect - noise}
            lines = [dict(step=step, **{key: value - 2 + step for key, value in values.items()}) for step in (1, 2)]
            (here / 'scalars.json').write_text(''.join(json.dumps(line) + '\n' for line in lines) + '{"unfinished')
            note = dict(label=label, seed=seed, parameters=10, code='c')
            (tmp_path / 'cells' / name / CELL).write_text(json.dumps(note))
            (tmp_path / 'cells' / name / DONE).touch()
            names.append(name)
    note = dict(base='b.py', labels=LABELS, seeds=[*range(seeds)], baseline='none', margin=0.3, names={})
    note |= dict(metrics=dict.fromkeys(metrics, True), cells=names)
    (tmp_path / GRID).write_text(json.dumps(note))
    return tmp_path


def test_report_has_all_metrics_and_scipy_s_intervals(tmp_path, capsys):
    report.write_report(folder_of(tmp_path))
    said = capsys.readouterr().out
    assert 'accuracy/top1 (sd)' in said and 'accuracy/top5 (sd)' in said
    first, second = report.summarise(tmp_path)
    variant = first.compared[0]
    differences = np.array([variant.values[seed] - first.reference.values[seed] for seed in range(5)])
    test = stats.ttest_1samp(differences, 0)
    assert np.allclose([variant.comparison.low, variant.comparison.high], [*test.confidence_interval(0.95)])
    assert variant.comparison.verdict.value == 'better' and second.compared[0].comparison.verdict.value == 'worse'
    assert len((tmp_path / 'report.csv').read_text().splitlines()) == 1 + 2 * 2 * 5


def test_finished_grid_is_compared_by_another_metric_of_its_records(tmp_path):
    folder = folder_of(tmp_path, metrics=(TOP1,))
    [found] = report.summarise(folder, [TOP5])
    assert np.mean([*found.variants[0].values.values()]) == pytest.approx(95, abs=0.2)
    with pytest.raises(ValueError, match='accuracy/top9'):
        report.summarise(folder, ['accuracy/top9'])


def test_value_that_is_not_finite_is_a_failure(tmp_path):
    folder = folder_of(tmp_path)
    path = folder / 'cells' / 'none_seed0_0' / '1' / 'vis_data' / 'scalars.json'
    path.write_text(json.dumps({'step': 2, TOP1: float('nan')}) + '\n')
    found, _ = report.summarise(folder)
    said = '; '.join(report.remarks(found))
    assert 0 not in found.variants[0].values and 'no finite accuracy/top1' in said
    assert '10 of 10 cells done' in said and 'preliminary' not in said


def test_pictures_hold_long_names(tmp_path):
    assert wrapped(LABELS[1]).replace('\n', '') == LABELS[1]
    assert max(map(len, wrapped(LABELS[1]).split('\n'))) <= WIDEST
    found, _ = report.summarise(folder_of(tmp_path))
    panel = curves_picture(found).axes[0]
    assert panel.get_title() == wrapped(LABELS[1]) and len(panel.lines) == 2
    assert [label.get_text() for label in forest_picture(found).axes[0].get_yticklabels()] == [wrapped(LABELS[1])]


def test_cells_of_a_seed_start_from_the_same_host():
    states = []
    for plugs in ('none', 'refiner+se(reduction=4)'):
        cfg = Config(dict(model=dict(type='vitplug.VisionTransformer', arch='deit-tiny', img_size=32, plugs=plugs)))
        runner = SimpleNamespace(cfg=cfg, model=MODELS.build(cfg.model), seed=0, logger=logging.getLogger('test'))
        PairedWeightsHook().before_run(runner)
        runner.model.init_weights()
        states.append(runner.model.state_dict())
    assert {*states[0]} < {*states[1]} and all(torch.equal(states[1][name], w) for name, w in states[0].items())


# --- the evidence ---


@pytest.mark.parametrize('path', sorted((ROOT / 'docs' / 'evidence').glob('*/*.json')), ids=lambda path: path.stem)
def test_evidence_is_what_its_cells_give(path):
    """Differences and intervals of the page, computed again by SciPy from the values of the cells."""
    content = json.loads(path.read_text())
    page = ' '.join((path.parents[1] / 'README.md').read_text().split())
    grid, scale = content['grid'], content['statistics']['points_per_unit']
    values = {label: {} for label in grid['labels']}
    for cell in content['cells']:
        if cell['state'] == 'done':
            values[cell['label']][cell['seed']] = scale * cell['value']
    for variant in content['variants']:
        found, own = variant['comparison'], values[variant['label']]
        if found is None or found['low'] is None:
            continue
        differences = [own[seed] - values[grid['baseline']][seed] for seed in found['seeds']]
        ends = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
        assert np.allclose([found['difference'], found['low'], found['high']], [np.mean(differences), *ends])
        if path.stem not in ('class_token', 'mean', 'low_rate', 'high_rate', 'length', 'segmentation', 'detection'):
            assert f'{found["difference"]:+.2f} ({found["low"]:+.2f} to {found["high"]:+.2f})' in page
