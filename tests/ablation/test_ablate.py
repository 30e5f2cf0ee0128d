"""Real trainings of grids on digits: paired by seed, and the same numbers however often they are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from digit_grids import ROOT, TINY, VIT, epochs, write_grid
from mmengine.hooks import LoggerHook
from mmengine.registry import MODELS

from vitplug.ablation import worker
from vitplug.ablation.ablate_command import conclude
from vitplug.ablation.controller import Controller
from vitplug.ablation.recorder import CellRecorder
from vitplug.ablation.records import State
from vitplug.ablation.report import write_report
from vitplug.ablation.summary import summarise
from vitplug.runs.hooks import paired_weights

MEASURED = ('seconds', 'memory_mib')


pytestmark = [pytest.mark.integration, pytest.mark.usefixtures('digits_variable')]


class InProcess:
    """An engine that trains a cell where it is submitted, undisturbed."""

    slots = 1

    def submit(self, folder):
        self.status = 0
        try:
            worker.main([str(folder)])
        except SystemExit as end:
            self.status = end.code
        return self

    def poll(self):
        return self.status

    def attach(self, folder):
        return None

    def close(self):
        pass


def undisturbed(out, **settings):
    """A grid without the command and its processes."""
    cells = write_grid(out, **settings)
    outcome = Controller(InProcess(), sleep=lambda seconds: None).run(cells)
    assert len(outcome.done) == len(cells)
    return cells


def test_cells_of_one_seed_have_the_same_host_weights_data_and_order(tmp_path, monkeypatch):
    weights, batches = {}, {}

    def watch(self, runner, batch_idx, data_batch=None):
        name = Path(runner.work_dir).name.rpartition('_')[0]
        if runner.iter == 0:
            weights[name] = {key: value.clone() for key, value in runner.model.state_dict().items()}
        batches.setdefault(name, []).append(data_batch['inputs'].clone())

    monkeypatch.setattr(CellRecorder, 'before_train_iter', watch)
    # Refiner and SqueezeExcite draw weights of their own; cells are trained once each.
    settings = dict(plugs=['none', 'refiner', 'se+gab'], seeds=[0, 1], options=TINY | epochs(1))
    cells = undisturbed(tmp_path / 'grid', **settings)
    plain = weights['none_seed0']
    for name in ('refiner_seed0', 'se+gab_seed0'):
        assert set(plain) < set(weights[name])
        assert [key for key in plain if not torch.equal(plain[key], weights[name][key])] == []
        assert torch.equal(torch.stack(batches[name]), torch.stack(batches['none_seed0']))
    assert not torch.equal(weights['none_seed1']['head.fc.weight'], plain['head.fc.weight'])
    assert not torch.equal(torch.stack(batches['none_seed1']), torch.stack(batches['none_seed0']))
    results = [json.loads((cell.folder / 'done.json').read_text()) for cell in cells]
    assert {one['iterations'] for one in results} == {4} and {one['status'] for one in results} == {'done'}
    assert results[0]['parameters'] < results[1]['parameters']
    assert not list(tmp_path.rglob('*.pth')) and not list(tmp_path.rglob('config_2.py'))
    # A plain cell is the training that tools/train.py makes of its config.
    monkeypatch.setattr(paired_weights, 'take_over', lambda model, weights: 0)
    weights.clear()
    undisturbed(tmp_path / 'unpaired', **settings | dict(plugs=['none', 'refiner'], seeds=[0]))
    assert all(torch.equal(plain[key], weights['none_seed0'][key]) for key in plain)
    # The defect that pairing mends.
    assert not all(torch.equal(plain[key], weights['refiner_seed0'][key]) for key in plain)


def test_cells_start_from_a_checkpoint_and_go_on_from_their_own(tmp_path, monkeypatch):
    weights = {}

    def watch(self, runner, batch_idx, data_batch=None):
        if runner.iter == 0:
            weights[Path(runner.work_dir).name] = {
                key: value.clone() for key, value in runner.model.state_dict().items()
            }

    def cut(self, runner):
        if runner.epoch == 2:
            raise SystemExit(9)

    options = TINY | epochs(2)
    [cell, _] = write_grid(tmp_path / 'trained', plugs=['none', 'refiner'], seeds=[0], options=options)
    trained = MODELS.build(cell.cfg.model).state_dict()
    torch.save(dict(state_dict=trained), tmp_path / 'trained.pth')
    settings = dict(
        plugs=['none', 'refiner'], seeds=[0], options=options | {'load_from': str(tmp_path / 'trained.pth')}
    )
    monkeypatch.setattr(CellRecorder, 'before_train_iter', watch)
    undisturbed(tmp_path / 'whole', **settings)
    assert len(weights) == 2
    assert all(torch.equal(own[key], trained[key]) for own in weights.values() for key in trained)
    cells = write_grid(tmp_path / 'cut', **settings)
    for cell in cells:
        with monkeypatch.context() as patch, pytest.raises(SystemExit, match='9'):
            patch.setattr(LoggerHook, 'before_val_epoch', cut)
            worker.main([str(cell.folder)])
        worker.main([str(cell.folder)])
    assert records(tmp_path / 'cut') == records(tmp_path / 'whole')


def test_cell_whose_metric_is_never_finite_has_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr('vitplug.ablation.recorder._number', lambda value: float('nan'))
    [cell] = undisturbed(tmp_path, plugs=['none'], seeds=[0], options=TINY | epochs(1))
    assert json.loads((cell.folder / 'done.json').read_text())['best'] is None
    outcome = Controller(InProcess()).run([cell])
    assert [*cell.folder.glob('*.pth')], 'its weights tell why'
    assert conclude(outcome, [cell], 0, tmp_path) == 1 and f'move {cell.folder} away' in capsys.readouterr().out
    [none] = summarise(tmp_path).rows
    assert [one.error for one in none.of(State.FAILED)] == ['finished, but its accuracy/top1 is nan']


def test_validation_that_is_cut_off_is_recorded_once(tmp_path, monkeypatch):
    """By a kill it is run again before the training goes on; by a signal it ends first, and is in the records."""
    settings = dict(plugs=['none'], seeds=[0], options=TINY | epochs(3))
    [whole] = undisturbed(tmp_path / 'whole', **settings)
    wanted = records(tmp_path / 'whole')[whole.folder.name]

    def cut(self, runner):
        if runner.epoch == 2:
            raise SystemExit(9)

    def ask(self, runner, metrics=None):
        if runner.epoch == 2:
            os.kill(os.getpid(), signal.SIGUSR1)

    for name, method, disturbance, status in (
        ('killed', 'before_val_epoch', cut, 9),
        ('asked', 'after_val_epoch', ask, 75),  # before the hooks that record it and look for signals
    ):
        [cell] = write_grid(tmp_path / name, **settings)
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(LoggerHook, method, disturbance)
            worker.main([str(cell.folder)])
        assert end.value.code == status and not cell.is_done
        worker.main([str(cell.folder)])
        assert records(tmp_path / name)[cell.folder.name] == wanted, name


# --- kills ---


def records(out):
    """What each cell has come to, by its folder; less what is measured."""
    found = {}
    for cell in sorted((out / 'cells').iterdir()):
        result = json.loads((cell / 'done.json').read_text())
        kept = {key: value for key, value in result.items() if key not in MEASURED}
        found[cell.name] = kept, (cell / 'validations.jsonl').read_text()
    return found


def begun(out):
    """The folders of cells that have a checkpoint and no result."""
    return [path.parent for path in out.glob('cells/*/last_checkpoint') if not (path.parent / 'done.json').exists()]


def worker_of(cell):
    """The process that trains a cell, as its lock says."""
    return int((cell / '.training.lock').read_text().rpartition(' ')[2])


def is_alive(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2][0] != 'Z'
    except OSError:
        return False


def wait_for(found, process=None, seconds=240):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None, 'the controller has ended'
        result = found()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError('waited too long')


@pytest.mark.slow
@pytest.mark.skipif(not Path('/proc/self').exists(), reason='looks for processes in /proc')
def test_killed_controller_and_worker_change_no_number(tmp_path):
    options = TINY | epochs(30, 6)
    undisturbed(tmp_path / 'whole', plugs=['none', 'refiner'], seeds=[0, 1], options=options)
    grid, out = tmp_path / 'grid.py', tmp_path / 'killed'
    grid.write_text(f"base = {VIT!r}\nplugs = ['none', 'refiner']\nseeds = 2\noptions = {options!r}\n")
    command = [sys.executable, str(ROOT / 'tools' / 'ablate.py'), str(grid), '--out', str(out), '--jobs', '2']
    env = {**os.environ, 'OMP_NUM_THREADS': '1'}
    output = tmp_path / 'output'

    def start():
        return subprocess.Popen(command, env=env, stdout=output.open('a'), stderr=subprocess.STDOUT)

    controller = start()
    [cell, *_] = wait_for(lambda: begun(out), controller)
    killed = worker_of(cell)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: worker_of(cell) != killed, controller)
    # One ablation at a time.
    refused = subprocess.run(command, env=env, capture_output=True, text=True)
    assert refused.returncode == 2 and 'another ablation is running' in refused.stderr

    left = [worker_of(one) for one in wait_for(lambda: begun(out), controller)]
    controller.kill()
    controller.wait()
    # Workers save and end where their controller is gone.
    wait_for(lambda: not any(map(is_alive, left)), seconds=60)
    finished = {path: path.stat().st_mtime_ns for path in out.glob('cells/*/done.json')}
    assert start().wait(timeout=400) == 0, output.read_text()[-3000:]
    assert records(out) == records(tmp_path / 'whole')
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in finished.items())
    assert '4 of 4 cells done, 0 failed' in output.read_text()
    write_report(out)
    assert (out / 'report.html').is_file()


@pytest.mark.slow
def test_ctrl_c_saves_and_failed_cells_wait_for_a_retry(tmp_path):
    """Ctrl-C saves the running cell and ends with 75; a cell with a damaged image fails alone, until it is repeated."""
    out = tmp_path / 'out'
    grid = tmp_path / 'grid.py'
    options = TINY | epochs(12, 6)
    axes = {'default_hooks.bad_samples.strict': [False, True]}
    grid.write_text(f'base = {VIT!r}\naxes = {axes!r}\nseeds = 1\noptions = {options!r}\n')
    env = {**os.environ, 'OMP_NUM_THREADS': '1'}
    command = [sys.executable, str(ROOT / 'tools' / 'ablate.py'), str(grid), '--out', str(out), '--jobs', '1']
    controller = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    [cell] = wait_for(lambda: begun(out), controller)
    controller.send_signal(signal.SIGINT)
    text, _ = controller.communicate(timeout=120)
    assert controller.returncode == 75 and 'the same command goes on' in text
    assert not is_alive(worker_of(cell)) and len(list(out.glob('cells/*/.training.lock'))) == 1
    # A damaged image: the strict variant fails with 65, the other replaces the sample.
    image = next((Path(os.environ['VITPLUG_DIGITS']) / 'imagenet/train').rglob('*.*g'))
    before = image.read_bytes()
    image.write_bytes(before[:100])
    try:
        ended = subprocess.run(command, env=env, capture_output=True, text=True)
        assert ended.returncode == 1, ended.stdout[-2000:] + ended.stderr[-2000:]
        assert 'strict=True with seed 0: exit status 65, attempt 1: ' in ended.stdout
        assert '1 of 2 cells done, 1 failed' in ended.stdout
    finally:
        image.write_bytes(before)
    again = subprocess.run([*command, '--retry-all'], env=env, capture_output=True, text=True)
    assert again.returncode == 0 and '2 of 2 cells done, 0 failed' in again.stdout
