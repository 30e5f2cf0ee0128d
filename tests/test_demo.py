"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import json
import sys
import time
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from vitplug import demo


def ended(name, folder, records=()):
    """A finished training of a task with a model that is not trained."""
    cfg, work_dir = Config.fromfile(demo.CONFIGS / demo.TASKS[name].config), folder / name
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    (work_dir / 'now' / 'vis_data').mkdir(parents=True)
    (work_dir / 'now' / 'vis_data' / 'scalars.json').write_text('\n'.join(map(json.dumps, records)))
    torch.save(dict(meta=dict(), state_dict=model.state_dict()), work_dir / 'net.pth')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'net.pth'))
    return cfg


@pytest.mark.integration
@pytest.mark.parametrize('name', demo.TASKS)
def test_a_training_that_has_ended_gives_a_row_and_a_picture(name, digits, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
    task = demo.TASKS[name]
    records = [{'loss': 1.0}, {task.key: 0.1 * task.scale}, {task.key: 0.5 * task.scale}, {'loss': 0.5}]
    cfg = ended(name, tmp_path, records)
    assert [plug.type for plug in cfg.model.backbone.plugs] == ['ContextBroadcast']
    row = demo.row_of(name, tmp_path, time.time() - 3600)
    assert row[:4] == (name, Path(task.config).stem, task.metric, '0.500') and 3590 <= int(row[5]) <= 3600
    assert (tmp_path / f'{name}.png').stat().st_size > 10_000


# --- the table, and what to do next ---


def test_a_failure_says_where_and_why_in_one_line(monkeypatch, tmp_path, capsys):
    python = tmp_path / 'python'
    python.write_text('#!/bin/sh\necho first\necho "error: no memory"\ncase "$*" in *mask-rcnn*) exit 3;; esac\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(python))
    monkeypatch.setattr('vitplug.datasets.digit_scenes.make_digit_scenes', lambda root: None)
    with pytest.raises(SystemExit):
        demo.main([f'--work-dir={tmp_path}'])
    [line] = capsys.readouterr().err.splitlines()
    assert 'error: the detection training failed with status 3: error: no memory' in line
    assert Path(line.partition('in ')[2].rstrip(')')).read_text() == 'first\nerror: no memory\n'


def test_a_run_prints_its_table_and_commands_that_exist(tmp_path, monkeypatch, capsys):
    def trained(names, folder):
        (folder / names[0]).mkdir()
        (folder / names[0] / 'last_checkpoint').write_text('runs/epoch_7.pth')

    monkeypatch.chdir(demo.CONFIGS.parents[1])
    monkeypatch.setattr('vitplug.datasets.digit_scenes.make_digit_scenes', lambda root: None)
    monkeypatch.setattr(demo, 'train_all', trained)
    monkeypatch.setattr(demo, 'row_of', lambda name, *_: (name, 'net', 'top-1', '0.988', '1,234,567', '60'))
    demo.main([f'--work-dir={tmp_path}', '--task=classification'])
    lines = capsys.readouterr().out.splitlines()
    [written] = tmp_path.glob('*/results.txt')
    assert '1,234,567' in lines[3] and written.read_text().splitlines() == lines[1:4]
    test, train = (line.split() for line in lines[-2:])
    assert test[1:4] == ['-m', 'vitplug', 'test'] and test[5] == 'runs/epoch_7.pth' and train[-2:] == ['--plugs', 'gab']
    assert all(Path(path).is_file() for path in (test[0], test[4], train[4], 'docs/your_data.md'))
