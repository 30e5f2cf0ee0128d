"""The controller on an engine of made up workers: what is started, goes on, has failed, and is not done twice."""

import io
import json
import os
import signal
from collections import Counter

import pytest

from vitplug.ablation.cells import Cell, last_line
from vitplug.ablation.controller import ENDS_WITHOUT_PROGRESS, Controller, split_failed
from vitplug.ablation.engines import local as local_engine
from vitplug.ablation.engines.engine import LOST, goes_on
from vitplug.ablation.engines.local import LocalEngine
from vitplug.ablation.grid import Variant
from vitplug.progress import StatusLine


class FakeJob:
    """A worker that ends at the second look."""

    def __init__(self, folder, end):
        self.folder, self.end, self.looks, self.stopped = folder, end, 0, False

    def poll(self):
        self.looks += 1
        if self.stopped:
            return 75
        return self.end(self.folder) if self.looks == 2 else None

    def stop(self):
        self.stopped = True


class FakeEngine:
    """Ends of workers by cell, one for each start; `done` for cells without any."""

    def __init__(self, slots=2, **ends):
        self.slots, self.ends, self.left = slots, ends, {}
        self.started, self.most, self.jobs = [], 0, []

    def submit(self, folder):
        assert not any(job.folder == folder and job.looks < 2 and not job.stopped for job in self.jobs), 'twice at once'
        self.started.append(folder.name)
        ends = self.ends.get(folder.name, [])
        job = FakeJob(folder, ends.pop(0) if ends else done)
        self.jobs.append(job)
        self.most = max(self.most, sum(job.looks < 2 for job in self.jobs))
        return job

    def attach(self, folder):
        return self.left.pop(folder.name, None)


def done(folder):
    (folder / 'done.json').write_text('{"value": 1.0}')
    return 0


def status(number, line='', progress=False):
    """A worker that ends with a status, and may have written a checkpoint."""

    def end(folder):
        with (folder / 'output.log').open('a') as file:
            file.write(f'{line}\n')
        if progress:
            number_of = len(list(folder.glob('*.pth')))
            (folder / f'epoch_{number_of}.pth').write_text('x')
            (folder / 'last_checkpoint').write_text(str(folder / f'epoch_{number_of}.pth'))
        return number

    return end


def cells(folder, names='abcdef'):
    found = [Cell(Variant(name, {}, name, None), 0, name, None, folder / name) for name in names]
    for cell in found:
        cell.folder.mkdir(exist_ok=True)
    return found


def controller(engine, **settings):
    line = StatusLine(io.StringIO(), interval=0.0)
    return Controller(engine, line=line, sleep=lambda seconds: None, **settings)


def test_every_cell_is_done_once_and_no_more_than_the_slots_at_a_time(tmp_path):
    engine = FakeEngine(slots=3)
    outcome = controller(engine).run(cells(tmp_path))
    assert engine.started == list('abcdef') and engine.most == 3
    assert len(outcome.done) == 6 and not outcome.failed and not outcome.interrupted


def test_done_cells_are_skipped_and_failed_ones_left_as_they_are(tmp_path):
    all_cells = cells(tmp_path)
    done(all_cells[0].folder)
    (all_cells[1].folder / 'failed.json').write_text(json.dumps(dict(error='x', exit_status=1, attempt=2)))
    engine = FakeEngine()
    outcome = controller(engine).run(all_cells)
    assert engine.started == list('cdef')
    assert len(outcome.done) == 5 and [cell.variant.label for cell in outcome.failed] == ['b']


def test_failed_cell_is_repeated_where_it_is_asked_for(tmp_path):
    all_cells = cells(tmp_path, 'ab')
    engine = FakeEngine(b=[status(1, 'ValueError: no')])
    assert [cell.failure for cell in controller(engine).run(all_cells).failed] == [
        dict(error='ValueError: no', exit_status=1, attempt=1)
    ]
    engine = FakeEngine(b=[status(1, 'error: no again')])
    assert controller(engine).run(all_cells, again=all_cells).failed[0].failure['attempt'] == 2
    assert engine.started == ['b']
    # While it is repeated it counts as unfinished: interrupted, it goes on without being asked for again.
    engine = FakeEngine(b=[lambda folder: sorted(path.name for path in folder.iterdir()).index('failed.json')])
    with pytest.raises(ValueError, match=r"'failed\.json' is not in list"):
        controller(engine).run(all_cells, again=all_cells)
    assert len(controller(FakeEngine()).run(all_cells).done) == 2
    assert sorted(path.name for path in all_cells[1].folder.iterdir()) == ['done.json', 'output.log']


@pytest.mark.parametrize('number', [-signal.SIGKILL, LOST, 75, 69, 71])
def test_killed_worker_goes_on_at_once(tmp_path, number):
    engine = FakeEngine(slots=1, a=[status(number), status(number)])
    outcome = controller(engine).run(cells(tmp_path, 'ab'))
    assert engine.started == ['a', 'a', 'a', 'b'] and len(outcome.done) == 2


@pytest.mark.parametrize('number', [1, 2, 65, 66, 70])
def test_other_ends_are_failures(tmp_path, number):
    engine = FakeEngine(a=[status(number)])
    outcome = controller(engine).run(cells(tmp_path, 'ab'))
    assert engine.started == ['a', 'b'] and outcome.failed[0].failure['exit_status'] == number


def test_worker_that_is_killed_again_and_again_without_progress_has_failed(tmp_path):
    engine = FakeEngine(a=[status(-9, 'Killed')] * 10)
    outcome = controller(engine).run(cells(tmp_path, 'a'))
    assert len(engine.started) == ENDS_WITHOUT_PROGRESS
    assert outcome.failed[0].failure == dict(error='Killed', exit_status=-9, attempt=1)


def test_ends_are_counted_from_the_last_checkpoint_on(tmp_path):
    engine = FakeEngine(a=[status(-9, progress=True), *[status(-9)] * 10])
    assert len(controller(engine).run(cells(tmp_path, 'a')).failed) == 1
    assert len(engine.started) == 1 + ENDS_WITHOUT_PROGRESS


def test_full_disk_starts_no_other_cell_and_leaves_no_failed_one(tmp_path):
    all_cells = cells(tmp_path, 'abc')
    engine = FakeEngine(slots=1, a=[status(74, 'error: no room')])
    outcome = controller(engine).run(all_cells)
    assert engine.started == ['a'] and outcome.is_full and not outcome.failed and not outcome.interrupted
    assert len(controller(FakeEngine()).run(all_cells).done) == 3


def test_signal_that_is_ignored_stays_ignored(tmp_path):
    """As `nohup` has SIGHUP."""

    def hung_up(folder):
        os.kill(os.getpid(), signal.SIGHUP)
        return done(folder)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outcome = controller(FakeEngine(a=[hung_up])).run(cells(tmp_path))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(outcome.done) == 6 and not outcome.interrupted


def test_worker_that_writes_checkpoints_goes_on_for_ever(tmp_path):
    engine = FakeEngine(a=[status(-9, progress=True)] * 10)
    assert len(controller(engine).run(cells(tmp_path, 'a')).done) == 1
    assert len(engine.started) == 11


def test_worker_without_a_result_has_failed_and_one_killed_after_its_result_has_not(tmp_path):
    def killed_after(folder):
        done(folder)
        return -9

    outcome = controller(FakeEngine(a=[status(0)], b=[killed_after])).run(cells(tmp_path, 'ab'))
    assert [cell.variant.label for cell in outcome.failed] == ['a']
    assert [cell.variant.label for cell in outcome.done] == ['b']


def test_signal_stops_the_jobs_and_starts_no_more(tmp_path):
    def signalled(folder):
        os.kill(os.getpid(), signal.SIGTERM)
        return done(folder)

    engine = FakeEngine(a=[signalled])
    before = signal.getsignal(signal.SIGTERM)
    outcome = controller(engine).run(cells(tmp_path))
    assert outcome.interrupted and engine.started == ['a', 'b'] and engine.jobs[1].stopped
    assert not outcome.failed and signal.getsignal(signal.SIGTERM) == before


def test_job_that_an_earlier_controller_left_is_taken_over(tmp_path):
    """As on Slurm, where jobs outlive their controller."""
    all_cells = cells(tmp_path, 'ab')
    engine = FakeEngine()
    engine.left = {'b': FakeJob(all_cells[1].folder, done)}
    assert len(controller(engine).run(all_cells).done) == 2 and engine.started == ['a']


@pytest.mark.parametrize('keep, left', [('none', []), ('last', ['epoch_2.pth', 'last_checkpoint'])])
def test_checkpoints_of_finished_cells(tmp_path, keep, left):
    def finished(folder):
        (folder / 'mine.pth').write_text('of the user')
        written = sorted(path.name for path in folder.glob('epoch_*.pth'))
        (folder / 'done.json').write_text(json.dumps(dict(value=1.0, checkpoints=written)))
        return 0

    engine = FakeEngine(a=[*[status(-9, progress=True)] * 3, finished], b=[status(-9, progress=True), status(1)])
    all_cells = cells(tmp_path, 'ab')
    controller(engine, keep=keep).run(all_cells)
    found = sorted(path.name for path in (tmp_path / 'a').glob('*p*t*') if path.name != 'output.log')
    assert found == sorted([*left, 'mine.pth'])
    if keep == 'last':  # a note that names none
        (tmp_path / 'a' / 'last_checkpoint').write_text('')
        controller(FakeEngine(), keep=keep).run(cells(tmp_path, 'a'))
        assert (tmp_path / 'a' / 'epoch_2.pth').is_file()
    # What a failed cell may go on from stays.
    assert (tmp_path / 'b' / 'epoch_0.pth').is_file()


def test_progress_line(tmp_path):
    seconds = iter(range(0, 10**6, 10))
    one = controller(FakeEngine(b=[status(1)]), clock=lambda: next(seconds))
    one.run(cells(tmp_path))
    text = one.line.stream.getvalue()
    assert '0 of 6 cells done, 2 running, 0 failed\n' in text
    assert 'cells done, 1 failed' not in text and '1 failed, about ' in text and ' left\n' in text


def test_time_left_is_not_shared_among_slots_without_a_cell(tmp_path):
    one = controller(FakeEngine(slots=100))
    one.durations = [3600.0]
    one._show(3, 2, 0)
    assert 'about 30 min' in one.line.stream.getvalue()


def test_failures_that_would_come_again(tmp_path):
    all_cells = cells(tmp_path)
    for cell, number in zip(all_cells, (65, 66, 70, 1, -9), strict=False):
        (cell.folder / 'failed.json').write_text(json.dumps(dict(error='', exit_status=number, attempt=1)))
    repeatable, lasting = split_failed(all_cells)
    assert [cell.variant.label for cell in repeatable] == ['d', 'e']
    assert [cell.variant.label for cell in lasting] == ['a', 'b', 'c']
    assert not any(map(goes_on, (0, 1, 2, 65, 66, 70, 74)))


def test_last_line_is_the_error(tmp_path):
    assert last_line(tmp_path, 0) == 'no output'
    (tmp_path / 'output.log').write_text('step 1\nerror: the loss is not finite (more in x.log)\n\nnote\n')
    assert last_line(tmp_path, 0) == 'the loss is not finite (more in x.log)'
    (tmp_path / 'output.log').write_text('Traceback\n  File\nValueError: wrong\n')
    assert last_line(tmp_path, 0) == 'ValueError: wrong'


def test_reason_is_that_of_the_last_attempt(tmp_path):
    engine = FakeEngine(a=[status(-9, 'error: first'), status(1, 'ValueError: second')])
    assert controller(engine).run(cells(tmp_path, 'a')).failed[0].failure['error'] == 'ValueError: second'


# --- the local engine ---


def test_cores_and_accelerators_are_shared_out(tmp_path, monkeypatch):
    monkeypatch.setattr(local_engine, 'cores', lambda: 8)
    monkeypatch.setattr('vitplug.threads.cores', lambda: 8)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    assert LocalEngine().slots == 8 and LocalEngine(gpus='03').slots == 2
    engine = LocalEngine(jobs=3, gpus='57')
    assert [engine.variables(slot) for slot in range(3)] == [
        {'OMP_NUM_THREADS': '2', 'CUDA_VISIBLE_DEVICES': gpu} for gpu in '575'
    ]
    assert LocalEngine(jobs=20).variables(19) == {'OMP_NUM_THREADS': '1'}


def test_visible_accelerators_are_those_of_the_user(monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '2, 5')
    assert local_engine.visible_gpus() == ['2', '5']
    for none in ('', '-1', '-1,0'):  # CUDA ends the list at the first wrong name
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', none)
        assert local_engine.visible_gpus() == []


def test_slot_of_a_job_is_free_once_it_has_ended(tmp_path, monkeypatch):
    jobs = []

    class Quick:
        def __init__(self, folder, variables, options):
            self.variables, self.status = variables, None
            jobs.append(self)

        def poll(self):
            return self.status

    monkeypatch.setattr(local_engine, 'LocalJob', Quick)
    engine = LocalEngine(jobs=2, gpus='01')
    for _ in range(2):
        engine.submit(tmp_path)
    jobs[0].status = 0
    engine.submit(tmp_path)
    assert Counter(job.variables['CUDA_VISIBLE_DEVICES'] for job in jobs) == {'0': 2, '1': 1}
