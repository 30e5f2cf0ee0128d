"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import dataclasses
import json
import shlex
from pathlib import Path

import joblib
import pytest
from mmengine.config import Config

from vitplug import demo

CLASSIFICATION, *_ = demo.TASKS
TASK = demo.Task('classification', 'net.py', 'top-1', 'accuracy/top1', 100, 'next.py')


def test_every_task_has_a_config_with_context_broadcasting():
    assert [task.name for task in demo.TASKS] == ['classification', 'segmentation', 'detection']
    for task in demo.TASKS:
        assert (demo.CONFIGS / task.next_config).is_file()
        cfg = Config.fromfile(demo.CONFIGS / task.config)
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


class Process:
    """A process of a training, without the training."""

    def __init__(self, command, stdout, stderr, env):
        self.command, self.env, self.status = command, env, None

    def poll(self):
        return self.status


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setattr(demo.subprocess, 'Popen', Process)
    return demo.Training(TASK, tmp_path, 2)


def test_training_tells_its_time_left_and_why_it_failed(training, tmp_path):
    assert training.process.command[-2:] == ['--work-dir', str(tmp_path / 'classification')]
    assert not training.has_ended() and training.time_left() == 'begins'
    training.output.write_text(
        'mmengine - INFO - Epoch(train) [1][ 20/125]  lr: 1e-03  eta: 0:05:00  time: 0.2\n'
        'mmengine - INFO - Iter(train) [2][ 20/125]  lr: 1e-03  eta: 1 day, 0:02:40  time: 0.2\n'
        'mmengine - INFO - Epoch(val) [2][ 20/50]    eta: 0:00:09  time: 0.1\nend\n'
    )
    assert training.time_left() == '1 day, 0:02:40 left'
    training.process.status = 0
    assert training.has_ended()
    training.process.status = 3
    with pytest.raises(demo.TrainingFailed, match=r'(?s)training failed with exit status 3.*\.log:.*end$'):
        training.has_ended()


@pytest.mark.parametrize(('users', 'expected'), [(None, '2'), ('6', '6')])
def test_threads_of_the_user_are_kept(users, expected, training, tmp_path, monkeypatch):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    if users:
        monkeypatch.setenv('OMP_NUM_THREADS', users)
    assert demo.Training(TASK, tmp_path, 2).process.env['OMP_NUM_THREADS'] == expected


@pytest.fixture
def fake_trainings(monkeypatch):
    """Trainings that last for as many looks as their scale says; gives the record of what happened."""
    record = []

    class Training:
        alive = 0

        def __init__(self, task, folder, threads):
            self.task, self.left = task, task.scale
            type(self).alive += 1
            record.append((f'start {task.name}', Training.alive, threads))

        def time_left(self):
            return ''

        def has_ended(self):
            self.left -= 1
            if self.left == 0 and self.task.key == 'fails':
                raise demo.TrainingFailed(self.task.name)
            type(self).alive -= self.left == 0
            return self.left == 0

        def result(self):
            return demo.Result(self.task, 0.5, 1, 2.0)

        def stop(self):
            record.append(f'stop {self.task.name}')

    monkeypatch.setattr(demo, 'Training', Training)
    monkeypatch.setattr(demo.time, 'sleep', lambda seconds: None)
    return record


def tasks_of(*looks, keys=('', '', '')):
    return [demo.Task(name, '', 'top-1', key, n, '') for name, n, key in zip('abc', looks, keys, strict=False)]


@pytest.mark.parametrize(
    ('cores', 'starts'),
    [
        (1, [('start a', 1, 1), ('start b', 1, 1), ('start c', 1, 1)]),
        (2, [('start a', 1, 1), ('start b', 2, 1), ('start c', 2, 1)]),
        (6, [('start a', 1, 2), ('start b', 2, 2), ('start c', 3, 2)]),
    ],
)
def test_trainings_share_the_cores(cores, starts, fake_trainings, tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, 'cpu_count', lambda: cores)
    assert [result.task.name for result in demo.train_all(tasks_of(5, 2, 3), tmp_path)] == ['a', 'b', 'c']
    assert fake_trainings == starts


def test_failure_stops_the_other_trainings(fake_trainings, tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, 'cpu_count', lambda: 2)
    with pytest.raises(demo.TrainingFailed, match='b'):
        demo.train_all(tasks_of(5, 2, 3, keys=('', 'fails', '')), tmp_path)
    assert fake_trainings[-2:] == ['stop a', 'stop b']


# --- what to do next ---


def test_next_steps_are_commands_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(demo.ROOT)
    result = demo.Result(CLASSIFICATION, 0.97, 1, 150, str(demo.ROOT / 'work_dirs' / 'demo' / 'epoch_8.pth'))
    what, test, train = demo.next_steps(result, Path('data/digits'))
    assert 'docs/your_data.md' in what and (demo.ROOT / 'docs' / 'your_data.md').is_file()
    python = demo.shown(demo.sys.executable)
    assert test.split()[:4] == [
        python, 'tools/test.py', f'configs/digits/{CLASSIFICATION.config}', 'work_dirs/demo/epoch_8.pth'
    ]  # fmt: skip
    assert train.split() == [python, 'tools/train.py', f'configs/digits/{CLASSIFICATION.next_config}']
    elsewhere = demo.next_steps(result, tmp_path / 'digits')
    assert elsewhere[2].split()[0] == f'VITPLUG_DIGITS={tmp_path / "digits"}'
    result = dataclasses.replace(result, checkpoint='/my runs/epoch_8.pth')
    spaced = shlex.split(demo.next_steps(result, Path('/my data'))[1])
    assert spaced[0] == 'VITPLUG_DIGITS=/my data' and '/my runs/epoch_8.pth' in spaced
