"""Toy cells for the engines: a process that takes three steps, each kept in a file, and goes on where it was killed."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from vitplug.ablation.cells import Cell
from vitplug.ablation.engines.slurm import CellOnNodes
from vitplug.ablation.grid import Variant

# `begun` has a line for each start, `steps` one for each step, `done` one for each end: twice done would show. The
# cell `slow` waits in its second step until it is killed, or until it has been killed once.
SCRIPT = r"""
import os, signal, sys, threading, time
folder = sys.argv[1] + '/'
def add(name, text):
    with open(folder + name, 'a') as file:
        file.write(f'{text}\n')
def stop(number, frame):
    add('asked', number)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
def heed_parent():
    while os.read(0, 1):
        pass
    add('left', '')
    os._exit(75)
threading.Thread(target=heed_parent, daemon=True).start()
add('begun', os.getpid())
starts = len(open(folder + 'begun').readlines())
steps = open(folder + 'steps').readlines() if os.path.exists(folder + 'steps') else []
for step in range(len(steps), 3):
    while step == 1 and os.path.exists(folder + 'slow') and starts == 1:
        time.sleep(0.05)
    add('steps', step)
add('done', starts)
with open(folder + 'done.json', 'w') as file:
    file.write('{}')
"""


def python_path() -> str:
    """The value of PYTHONPATH with which a process of a cluster finds this module."""
    return os.pathsep.join([str(Path(__file__).parent), os.environ.get('PYTHONPATH', '')])


def toy_command(folder, *args):
    """The command of a toy cell."""
    return [sys.executable, '-S', '-c', SCRIPT, str(folder)]


@dataclass(frozen=True)
class ToyOnNodes(CellOnNodes):
    """A toy cell as a job of Slurm."""

    def command(self, job, node, status):
        return toy_command(self.folder)


def make_cells(folder: Path, number: int, slow=()) -> list[Cell]:
    """Toy cells, some of them slow."""
    names = [f'cell{index}' for index in range(number)]
    cells = [Cell(Variant(name, {}, name, None), 0, name, None, folder / name) for name in names]
    for index, cell in enumerate(cells):
        cell.folder.mkdir(parents=True)
        if index in slow:
            (cell.folder / 'slow').touch()
    return cells


def lines(cell: Cell, name: str) -> list[str]:
    """The lines of a file of a cell."""
    path = cell.folder / name
    return path.read_text().split() if path.is_file() else []


def assert_each_done_once(cells) -> None:
    """Nothing is lost, and nothing is done twice."""
    for cell in cells:
        assert lines(cell, 'steps') == ['0', '1', '2'] and len(lines(cell, 'done')) == 1, cell
