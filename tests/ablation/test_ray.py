"""Cells as tasks of a Ray cluster on this machine."""

import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from toy_cells import assert_each_done_once, lines, make_cells, python_path, toy_command

from vitplug.ablation.controller import Controller
from vitplug.ablation.engines.launch import Share
from vitplug.ablation.engines.ray import RayEngine
from vitplug.progress import StatusLine

CONTROLLER = """
import sys
from pathlib import Path
from vitplug.ablation.controller import Controller
from vitplug.ablation.engines.launch import Share
from vitplug.ablation.engines.ray import RayEngine
from toy_cells import make_cells, toy_command
engine = RayEngine(Share(), jobs=1, address='local')
engine.command = toy_command
Controller(engine).run(make_cells(Path(sys.argv[1]), 1, slow=(0,)))
"""


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(ModuleNotFoundError, match='needs Ray, which is not installed: pip install'):
        RayEngine(Share())


@pytest.mark.slow
def test_grid_with_a_killed_worker_and_a_killed_task(tmp_path, monkeypatch):
    pytest.importorskip('ray')
    monkeypatch.setenv('PYTHONPATH', python_path())
    with pytest.raises(ValueError, match='--nodes 2: a task of Ray lies on one node'):
        RayEngine(Share(nodes=2))
    number = int(os.environ.get('VITPLUG_TOY_CELLS', 12))
    cells = make_cells(tmp_path, number, slow=(0,))

    def kill():
        until = time.monotonic() + 120
        while not lines(cells[0], 'steps') and time.monotonic() < until:
            time.sleep(0.2)
        os.kill(int(lines(cells[0], 'begun')[0]), signal.SIGKILL)

    engine = RayEngine(Share(), jobs=2, address='local')
    engine.command = toy_command
    thread = threading.Thread(target=kill)
    thread.start()
    outcome = Controller(engine, line=StatusLine(io.StringIO())).run(cells)
    thread.join()
    assert len(outcome.done) == number and not outcome.failed
    assert_each_done_once(cells)
    assert len(lines(cells[0], 'begun')) == 2


@pytest.mark.integration
@pytest.mark.slow
def test_killed_controller_leaves_its_workers_time_to_save(tmp_path, monkeypatch):
    pytest.importorskip('ray')
    monkeypatch.setenv('PYTHONPATH', python_path())
    controller = subprocess.Popen([sys.executable, '-c', CONTROLLER, str(tmp_path)])
    cell = tmp_path / 'cell0'

    def wait_for(name):
        until = time.monotonic() + 120
        while not (cell / name).exists():
            assert time.monotonic() < until and (name != 'steps' or controller.poll() is None), name
            time.sleep(0.2)

    wait_for('steps')
    controller.kill()
    controller.wait()
    wait_for('left')
