"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import argparse
import dataclasses
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.config import Config

from vitplug import demo, threads
from vitplug.progress import StatusLine

CLASSIFICATION, SEGMENTATION, DETECTION = demo.TASKS
TASK = demo.Task('classification', 'net.py', 'top-1', 'accuracy/top1', 100, 100, 'next.py')


def test_every_task_has_a_config_with_context_broadcasting_that_records_its_metric():
    assert [task.name for task in demo.TASKS] == ['classification', 'segmentation', 'detection']
    for task in demo.TASKS:
        assert (demo.ROOT / 'configs' / 'digits' / task.next_config).is_file()
        cfg = Config.fromfile(demo.ROOT / 'configs' / 'digits' / task.config)
        assert [plug.type for plug in cfg.model.backbone.plugs] == ['ContextBroadcast']


def test_last_record_wins(tmp_path):
    records = [{'loss': 1.0}, {'accuracy/top1': 50.0, 'step': 1}, {'accuracy/top1': 75.0, 'step': 2}, {'loss': 0.5}]
    path = tmp_path / '20260101_000000' / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('\n'.join(map(json.dumps, records)))
    assert demo.last_record(tmp_path, 'accuracy/top1') == 75.0
    with pytest.raises(KeyError, match='no record of mIoU'):
        demo.last_record(tmp_path, 'mIoU')


def test_table_is_aligned():
    rows = [demo.HEADINGS, demo.Result(TASK, 0.98765, 1234567, 59.6, 'a.pth').row()]
    lines = demo.format_table(rows).splitlines()
    assert lines[2].split() == ['classification', 'net', 'top-1', '0.988', '1,234,567', '60']
    assert [line.index(word) for line, word in ((lines[0], 'metric'), (lines[2], 'top-1'))] == [24, 24]


# --- trainings ---


@pytest.mark.slow
def test_failed_training_shows_the_end_of_its_output(tmp_path):
    training = demo.Training(TASK, tmp_path, threads=1)
    training.process.wait()
    with pytest.raises(demo.TrainingFailed, match='classification training failed with exit status 2') as error:
        training.poll()
    assert str(tmp_path / 'classification.log') in str(error.value)
    assert 'no such config: ' in str(error.value) and 'net.py' in str(error.value)


def test_training_gets_threads_and_tells_its_end(tmp_path, monkeypatch):
    started = {}

    class Process:
        def __init__(self, command, stdout, stderr, env):
            started.update(command=command, env=env)
            self.stdout, self.status = stdout.name, None

        def poll(self):
            return self.status

    monkeypatch.setattr(demo.subprocess, 'Popen', Process)
    monkeypatch.setattr('vitplug.threads.cores', lambda: 8)
    monkeypatch.setenv('OMP_NUM_THREADS', '8')
    clock = Clock()
    training = demo.Training(TASK, tmp_path, 2, clock)
    assert started['command'][-2:] == ['--work-dir', str(tmp_path / 'classification')]
    assert started['env']['OMP_NUM_THREADS'] == '2'
    assert not training.poll() and training.end is None
    with open(training.process.stdout, 'a') as log:
        log.write('mmengine - INFO - Epoch(train) [1][ 20/125]  lr: 1e-03  eta: 0:05:00  time: 0.2\n')
        log.write('mmengine - INFO - Epoch(train) [2][ 20/125]  lr: 1e-03  eta: 0:02:40  time: 0.2\n')
        log.write('mmengine - INFO - Epoch(val) [2][ 20/50]    eta: 0:00:09  time: 0.1\n')
        log.flush()
    assert not training.poll() and training.end == clock.now + 160
    with open(training.process.stdout, 'a') as log:
        log.write('Iter(train) [ 340/1200]  lr: 1e-03  eta: 1 day, 0:00:01  time: 0.2\n')
    assert not training.poll() and training.end == clock.now + 86401
    clock.now += 7
    training.process.status = 0
    assert training.poll() and training.end == clock.now


@pytest.mark.parametrize(
    'users, expected', [(None, {'OMP_NUM_THREADS': '3'}), ('6', {'OMP_NUM_THREADS': '3'}), ('1', {}), ('12', {})]
)
def test_threads_of_a_training_are_those_of_the_user(monkeypatch, users, expected):
    """6 is the number that `vitplug.threads` sets below a CPU quota of 6 cores."""
    monkeypatch.setattr(threads, 'cores', lambda: 6)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    if users:
        monkeypatch.setenv('OMP_NUM_THREADS', users)
    assert threads.thread_variables(3) == expected


@pytest.fixture
def fake_trainings(monkeypatch):
    """Trainings that last for as many looks as their task has seconds; gives the record of what happened."""
    record = []

    class Training:
        alive = 0

        def __init__(self, task, folder, threads):
            self.task, self.left, self.begin, self.end = task, task.seconds, 0.0, 1.0
            type(self).alive += 1
            record.append((f'start {task.name}', Training.alive, threads))

        def poll(self):
            self.left -= 1
            if self.left == 0 and self.task.key == 'fails':
                raise demo.TrainingFailed(self.task.name)
            type(self).alive -= self.left == 0
            return self.left == 0

        def value(self):
            return 0.5

        def result(self):
            return self.task.name

        def stop(self):
            record.append(f'stop {self.task.name}')

    monkeypatch.setattr(demo, 'Training', Training)
    monkeypatch.setattr(demo.time, 'sleep', lambda seconds: None)
    return record


def tasks_of(*seconds, keys=('', '', '')):
    return [
        demo.Task(name, 'net.py', 'top-1', key, 100, length, '')
        for name, length, key in zip('abc', seconds, keys, strict=False)
    ]


@pytest.mark.parametrize(
    'cores, starts',
    [
        (1, [('start a', 1, 1), ('start b', 1, 1), ('start c', 1, 1)]),
        (2, [('start a', 1, 1), ('start b', 2, 1), ('start c', 2, 1)]),
        (8, [('start a', 1, 2), ('start b', 2, 2), ('start c', 3, 2)]),
    ],
)
def test_tasks_are_trained_side_by_side(fake_trainings, tmp_path, monkeypatch, cores, starts):
    monkeypatch.setattr(demo, 'cores', lambda: cores)
    assert demo.train_all(tasks_of(5, 2, 3), tmp_path) == ['a', 'b', 'c']
    assert fake_trainings == starts


def test_failure_stops_the_other_trainings(fake_trainings, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, 'cores', lambda: 2)
    with pytest.raises(demo.TrainingFailed, match='b'):
        demo.train_all(tasks_of(5, 2, 3, keys=('', 'fails', '')), tmp_path)
    assert fake_trainings[-2:] == ['stop a', 'stop b']


# --- choice of tasks ---


@pytest.mark.parametrize(
    'text, tasks',
    [
        ('detection', [DETECTION]),
        ('detection,classification', [CLASSIFICATION, DETECTION]),
        (' segmentation, detection ', [SEGMENTATION, DETECTION]),
        ('detection detection', [DETECTION]),
    ],
)
def test_tasks_are_chosen_by_name(text, tasks):
    assert list(demo.tasks_named(text)) == tasks


@pytest.mark.parametrize(
    'text, words',
    [
        (
            'detction',
            "'detction' is no task: expected classification, segmentation, detection; did you mean 'detection'?",
        ),
        ('classification,seg', "'seg' is no task: expected classification, segmentation, detection"),
        (' , ', "' , ' names no task: expected classification"),
    ],
)
def test_unknown_tasks_are_refused(text, words):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        demo.tasks_named(text)
    assert words in str(error.value)


@pytest.mark.integration
def test_unknown_task_is_refused_before_set_up():
    """By a Python without site packages, as set-up has it; nothing is made."""
    command = [sys.executable, '-S', str(demo.ROOT / 'tools' / 'demo.py'), '--task', 'detction', '--dry-run']
    env = dict(PYTHONPATH=str(demo.ROOT))
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean 'detection'?" in done.stderr, done.stderr
    command[-2] = 'detection'
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout == f'detection: configs/digits/{DETECTION.config}\n', done.stderr


# --- progress ---


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def running(seconds, begin, end=None):
    return SimpleNamespace(task=tasks_of(seconds)[0], begin=begin, end=end, value=lambda: 0.97)


def test_time_left_is_that_of_all_tasks():
    out, clock = io.StringIO(), Clock()
    progress = demo.Progress(StatusLine(out, interval=0, clock=clock), clock)
    first, second = running(100, begin=1000), running(50, begin=1000)
    (third,) = tasks_of(200)
    clock.now = 1020
    progress.show([first, second], [third])
    # The third one follows the second one, which ends first: 30 s from now.
    assert last_line(out) == '20 s so far, about 3 min 50 s left; a 0 %, a 0 %'
    clock.now = 1040
    # 40 s are over and 160 s left of 100 s: twice as long, as will be the others.
    first.end = 1200
    progress.show([first, second], [third])
    assert progress.slowness == 2
    assert last_line(out) == '40 s so far, about 7 min 40 s left; a 20 %, a 0 %'
    clock.now = 1150
    second.end = 1150
    progress.finish(second)
    # It took three times as long.
    assert last_line(out) == 'result    a: top-1 0.970 after 2 min 30 s'
    assert progress.slowness == 3
    progress.show([running(200, begin=1150)], [])
    assert last_line(out) == '2 min 30 s so far, about 10 min 0 s left; a 0 %'
    late = running(10, begin=1000, end=1100)
    progress.show([late], [])
    assert last_line(out) == '2 min 30 s so far, nearly done; a 99 %'


def last_line(out):
    return out.getvalue().splitlines()[-1]


# --- what to do next ---


def test_next_steps_are_commands_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(demo.ROOT)
    result = demo.Result(CLASSIFICATION, 0.97, 1, 150, str(demo.ROOT / 'work_dirs' / 'demo' / 'epoch_8.pth'))
    what, test, train = demo.next_steps(result, Path('data/digits'))
    assert 'docs/your_data.md' in what and (demo.ROOT / 'docs' / 'your_data.md').is_file()
    python = demo.shown(sys.executable)
    assert test.split()[:4] == [
        python, 'tools/test.py', f'configs/digits/{CLASSIFICATION.config}', 'work_dirs/demo/epoch_8.pth'
    ]  # fmt: skip
    assert train.split() == [python, 'tools/train.py', f'configs/digits/{CLASSIFICATION.next_config}']
    elsewhere = demo.next_steps(result, tmp_path / 'digits')
    assert elsewhere[2].split()[0] == f'VITPLUG_DIGITS={tmp_path / "digits"}'
    result = dataclasses.replace(result, checkpoint='/my runs/epoch_8.pth')
    spaced = shlex.split(demo.next_steps(result, Path('/my data'))[1])
    assert spaced[0] == 'VITPLUG_DIGITS=/my data' and '/my runs/epoch_8.pth' in spaced
