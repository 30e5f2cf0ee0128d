"""Grids that go on from a report, after their folder was lost."""

import json
from dataclasses import replace

import pytest
from digit_grids import VIT, write_grid
from made_grid import METRIC, make_grid

from vitplug.ablation.ablate_command import main, starts_of
from vitplug.ablation.cells import finished_in
from vitplug.ablation.earlier_report import restore_cells
from vitplug.ablation.grid import GridFile, make_variants
from vitplug.ablation.records import State
from vitplug.ablation.report import read_report, write_report
from vitplug.ablation.summary import summarise

LABELS = ('none', 'gab')
GRID = GridFile('configs/fashion/base.py', plugs=LABELS, seeds=[0, 1], metric=METRIC)


@pytest.fixture
def report(tmp_path):
    """The report of a grid of which one cell is not done."""
    folder = make_grid(tmp_path / 'lost', seeds=(0, 1), labels=LABELS)
    next(folder.glob('cells/gab_seed1_*/done.json')).unlink()
    write_report(folder)
    return folder / 'report.json'


def test_finished_cells_are_as_they_were_and_others_are_trained(report, tmp_path):
    out = tmp_path / 'new'
    assert restore_cells(report, out, GRID, LABELS, {}) == 3
    assert restore_cells(report, out, GRID, LABELS, {}) == 0
    assert finished_in(out) == {('none', 0), ('gab', 0), ('none', 1)}
    (out / 'grid.json').write_text((report.parent / 'grid.json').read_text())
    before, after = (
        {(cell.label, cell.seed): cell for cell in summary.cells if cell.state is State.DONE}
        for summary in (read_report(report), summarise(out))
    )
    assert before == after


def test_cells_of_other_settings_are_refused_before_anything_is_written(report, tmp_path):
    with pytest.raises(ValueError, match=r'is of a grid with other settings, by the hash of gab with seed 0'):
        restore_cells(report, tmp_path / 'new', GRID, LABELS, {('none', 0): '0123456789', ('gab', 0): '9876543210'})
    assert not (tmp_path / 'new').exists()


def test_restored_cells_have_no_checkpoint_to_start_from(report, tmp_path):
    restore_cells(report, tmp_path / 'new', GRID, LABELS, {})
    (tmp_path / 'new' / 'grid.json').write_text((report.parent / 'grid.json').read_text())
    grid = GridFile(VIT, plugs=LABELS, seeds=[0, 1], start_from='../new')
    with pytest.raises(ValueError, match=r'no cell of .*new is done and has its checkpoint'):
        starts_of(grid, make_variants(grid), tmp_path / 'out')


@pytest.mark.parametrize('folder', ['', '../elsewhere', 'cells', 'cells/..'])
def test_folders_that_are_none_of_a_cell(report, tmp_path, folder):
    content = json.loads(report.read_text())
    content['cells'][0]['folder'] = folder
    report.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r'folder = .* of none with seed 0 is none of a cell'):
        restore_cells(report, tmp_path / 'new', GRID, LABELS, {})
    assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize('other', [dict(base='another.py'), dict(metric='mIoU')], ids=str)
def test_reports_of_other_grids(report, tmp_path, other):
    with pytest.raises(ValueError, match=r'report.json is of a grid with base .*base.py and metric accuracy/top1, not'):
        restore_cells(report, tmp_path / 'new', replace(GRID, **other), LABELS, {})


def test_cells_of_seeds_and_variants_that_the_grid_has_not(report, tmp_path):
    assert restore_cells(report, tmp_path / 'new', replace(GRID, seeds=[1, 2]), LABELS, {}) == 1
    assert restore_cells(report, tmp_path / 'other', GRID, ['gab'], {}) == 1


@pytest.mark.integration
def test_the_command_trains_nothing_that_its_report_has(tmp_path, monkeypatch, digits_variable):
    monkeypatch.chdir(tmp_path)
    for cell in write_grid(tmp_path / 'lost', plugs=LABELS, seeds=[0]):
        (cell.folder / 'validations.jsonl').write_text(
            '{"step": 1, "by": "epoch", "metrics": {"accuracy/top1": 50.0}}\n'
        )
        (cell.folder / 'done.json').write_text('{"metric": "accuracy/top1", "value": 50.0}')
    write_report(tmp_path / 'lost')
    arguments = [VIT, '--plugs', *LABELS, '--seeds', '1', '--out', 'new', '--from-report', 'lost/report.json']
    with pytest.raises(SystemExit) as end:
        main([*arguments, '--jobs', '1'])
    assert end.value.code == 0 and summarise(tmp_path / 'new').is_complete
    assert not list(tmp_path.glob('new/cells/*/output.log'))
