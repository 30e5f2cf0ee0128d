"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import json
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from vitplug import demo
from vitplug.errors import TrainingStopped


def ended(task, folder, records=()):
    """A finished training of a task with a model that is not trained."""
    cfg, work_dir = Config.fromfile(demo.CONFIGS / task.config), folder / task.name
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    (work_dir / 'now' / 'vis_data').mkdir(parents=True)
    (work_dir / 'now' / 'vis_data' / 'scalars.json').write_text('\n'.join(map(json.dumps, records)))
    torch.save(dict(meta=dict(), state_dict=model.state_dict()), work_dir / 'net.pth')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'net.pth'))
    return cfg


@pytest.mark.integration
@pytest.mark.parametrize('task', demo.TASKS, ids=lambda task: task.name)
def test_a_training_that_has_ended_gives_a_row_and_a_picture(task, digits, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    records = [{'loss': 1.0}, {task.key: 0.1 * task.scale}, {task.key: 0.5 * task.scale}, {'loss': 0.5}]
    cfg = ended(task, tmp_path, records)
    assert [plug.type for plug in cfg.model.backbone.plugs] == ['ContextBroadcast']
    row = demo.row_of(task, tmp_path, 59.6)
    assert row[:4] == (task.name, Path(task.config).stem, task.metric, '0.500') and row[5] == '60'
    assert (tmp_path / f'{task.name}.png').stat().st_size > 10_000


# --- trainings ---


def test_a_failure_says_where_and_why(monkeypatch, tmp_path, capsys):
    """Commands of trainings that end at once, the detection with status 3."""

    def call(command, stdout, stderr, env):
        stdout.write('the end')
        return 3 if 'mask-rcnn' in command[2] else 0

    monkeypatch.setattr(demo.subprocess, 'call', call)
    monkeypatch.setattr(demo, 'row_of', lambda task, folder, seconds: task.name)
    with pytest.raises(TrainingStopped, match=r'detection training failed with exit status 3.*detection\.log'):
        demo.train_all(demo.TASKS, tmp_path)
    assert capsys.readouterr().err == 'the end\n'


# --- the table, and what to do next ---


def test_a_run_prints_its_table_and_commands_that_exist(tmp_path, monkeypatch, capsys):
    def trained(tasks, folder):
        (folder / tasks[0].name).mkdir()
        (folder / tasks[0].name / 'last_checkpoint').write_text('runs/epoch_7.pth')
        return [(tasks[0].name, 'net', 'top-1', '0.988', '1,234,567', '60')]

    monkeypatch.chdir(demo.ROOT)
    monkeypatch.setattr('vitplug.datasets.digit_scenes.make_digit_scenes', lambda root: None)
    monkeypatch.setattr(demo, 'train_all', trained)
    demo.main([f'--work-dir={tmp_path}', '--task=classification'])
    lines = capsys.readouterr().out.splitlines()
    [written] = tmp_path.glob('*/results.txt')
    assert '1,234,567' in lines[3] and written.read_text().splitlines() == lines[1:4]
    test, train = (line.split() for line in lines[-2:])
    assert test[1:4] == ['-m', 'vitplug', 'test'] and test[5] == 'runs/epoch_7.pth' and train[-2:] == ['--plugs', 'gab']
    assert all(Path(path).is_file() for path in (test[0], test[4], train[4], 'docs/your_data.md'))
