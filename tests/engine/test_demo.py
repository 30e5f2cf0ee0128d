"""The demo's bookkeeping; its trainings are those of `tests/test_tools.py`."""

import json
from pathlib import Path

import pytest
from mmengine.config import Config

from vitplug.engine import demo

TASK = demo.Task('classification', 'net.py', 'top-1', 'accuracy/top1', 100)


def test_every_task_has_a_config_with_context_broadcasting_that_records_its_metric():
    assert [task.name for task in demo.TASKS] == ['classification', 'segmentation', 'detection']
    for task in demo.TASKS:
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
    rows = [demo.HEADINGS, demo.Result(TASK, 0.98765, 1234567, 59.6).row()]
    lines = demo.format_table(rows).splitlines()
    assert lines[2].split() == ['classification', 'net', 'top-1', '0.988', '1,234,567', '60']
    assert [line.index(word) for line, word in ((lines[0], 'metric'), (lines[2], 'top-1'))] == [24, 24]


def test_failed_training_names_task_and_log(tmp_path, monkeypatch):
    log = tmp_path / '20260101_000000' / 'run.log'
    log.parent.mkdir()
    log.write_text('')
    with pytest.raises(demo.TrainingFailed, match='classification training failed with exit status 2') as error:
        demo.train(TASK, Path('nowhere.py'), tmp_path)
    assert str(log) in str(error.value)
