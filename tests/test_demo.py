"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import dataclasses
import json
import shlex
from pathlib import Path

import joblib
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

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


@pytest.mark.integration
@pytest.mark.parametrize('task', demo.TASKS, ids=lambda task: task.name)
def test_a_training_that_has_ended_gives_a_row_and_a_picture(task, digits, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    cfg = Config.fromfile(demo.CONFIGS / task.config)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    work_dir = tmp_path / task.name
    (work_dir / 'now' / 'vis_data').mkdir(parents=True)
    (work_dir / 'now' / 'vis_data' / 'scalars.json').write_text(json.dumps({task.key: 0.5 * task.scale}))
    torch.save(dict(meta=dict(), state_dict=model.state_dict()), work_dir / 'net.pth')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'net.pth'))
    result = demo.result_of(task, tmp_path, 3.0)
    assert result.row()[:4] == (task.name, Path(task.config).stem, task.metric, '0.500')
    assert (tmp_path / f'{task.name}.png').stat().st_size > 10_000


def test_table_is_aligned():
    rows = [demo.HEADINGS, demo.Result(TASK, 0.98765, 1234567, 59.6, 'a.pth').row()]
    lines = demo.format_table(rows).splitlines()
    assert lines[2].split() == ['classification', 'net', 'top-1', '0.988', '1,234,567', '60']
    assert [line.index(word) for line, word in ((lines[0], 'metric'), (lines[2], 'top-1'))] == [24, 24]


# --- trainings ---


@pytest.fixture
def processes(monkeypatch, tmp_path):
    """Commands of trainings that end at once, the detection with status 3; they note what they were given."""
    started = []

    class Process:
        def __init__(self, command, stdout, stderr, env):
            stdout.write('the end')
            self.status = 3 if 'mask-rcnn' in command[2] else 0
            started.append(env['OMP_NUM_THREADS'])

        def wait(self):
            return self.status

    monkeypatch.setattr(demo.subprocess, 'Popen', Process)
    monkeypatch.setattr(demo, 'result_of', lambda task, folder, seconds: task.name)
    return started


@pytest.mark.parametrize(('cores', 'users', 'expected'), [(2, None, '1'), (4, None, '2'), (4, '6', '6')])
def test_trainings_share_the_cores(cores, users, expected, processes, tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, 'cpu_count', lambda: cores)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    if users:
        monkeypatch.setenv('OMP_NUM_THREADS', users)
    assert demo.train_all(demo.TASKS[:2], tmp_path) == ['classification', 'segmentation']
    assert processes == [expected] * 2


def test_a_failure_says_where_and_why(processes, tmp_path):
    with pytest.raises(demo.TrainingFailed, match=r'(?s)detection training failed with exit status 3.*the end$'):
        demo.train_all(demo.TASKS, tmp_path)


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
