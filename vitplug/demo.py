"""The demo: data, three trainings, one table, three pictures."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from vitplug.errors import TrainingStopped, one_line_errors
from vitplug.tables import format_table

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs' / 'digits'
DATA_ROOT = Path('data/digits')
HEADINGS = ('task', 'config', 'metric', 'value', 'parameters', 'seconds')
SHOWN_LINES = 20


class Task(NamedTuple):
    """One training of the demo."""

    name: str  # of the task and of its folder
    config: str  # file under `configs/digits`
    metric: str  # in the table
    key: str  # of the metric in mmengine's records
    scale: float  # divisor of a record, so that every value in the table is a share of one
    next_config: str  # to train next: the same task with another plug and more iterations


TASKS = (
    Task(
        'classification',
        'vit-mini-p4-cb_1xb32-7e_digits-32x32.py',
        'top-1',
        'accuracy/top1',
        100,
        next_config='vit-mini-p4-gab_1xb32-14e_digits-32x32.py',
    ),
    Task(
        'segmentation',
        'vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py',
        'mIoU',
        'mIoU',
        100,
        next_config='vit-mini-p8-gab_upernet_1xb8-1200i_digits-128x128.py',
    ),
    Task(
        'detection',
        'swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py',
        'segm mAP',
        'coco/segm_mAP',
        1,
        next_config='swin-mini-p4-w4-gab_mask-rcnn_1xb8-400i_digits-128x128.py',
    ),
)


def main(argv: Sequence[str] | None = None) -> None:
    """The command behind `make demo` and `tools/demo.py`."""
    parser = argparse.ArgumentParser(description='Train and evaluate three small models; print a table, draw pictures.')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    parser.add_argument('--data-root', type=Path, default=DATA_ROOT, help='made where it is missing')
    names = [task.name for task in TASKS]
    parser.add_argument('--task', nargs='+', choices=names, default=names, help='default all')
    args = parser.parse_args(argv)
    with one_line_errors('stopped'):
        run_demo(args.work_dir, args.data_root, [task for task in TASKS if task.name in args.task])


def run_demo(parent: Path, data_root: Path, tasks: Sequence[Task]) -> None:
    """Makes the data, trains and evaluates every task, and writes a table and a picture per task.

    Args:
        parent: Folder in which a folder named after the time is made.
        data_root: Folder of the data; made where it is missing.
        tasks: The tasks to train.

    Raises:
        TrainingStopped: If a training fails; names the task and its log.
    """
    from vitplug.datasets.digit_scenes import make_digit_scenes

    folder = parent.absolute() / datetime.now().strftime('%Y%m%d_%H%M%S')
    folder.mkdir(parents=True)
    # The configs read this variable, in this process and in the trainings' own.
    os.environ['VITPLUG_DIGITS'] = str(data_root.absolute())
    make_digit_scenes(data_root)
    rows = train_all(tasks, folder)
    table = format_table([HEADINGS, *rows])
    (folder / 'results.txt').write_text(table + '\n')
    print(f'\n{table}\n\ntable     {shown(folder / "results.txt")}')
    for task in tasks:
        print(f'picture   {shown(folder / f"{task.name}.png")}')
    print(next_steps(tasks[0], folder, data_root))


def train_all(tasks: Sequence[Task], folder: Path) -> list[tuple[str, ...]]:
    """Trains tasks side by side, one for each core, draws their predictions and returns the rows of the table.

    Small models gain little from a second thread, which waits for the first one most of the time.

    Raises:
        TrainingStopped: If a training fails; the others are stopped.
    """
    from joblib import cpu_count

    side_by_side, running = min(len(tasks), cpu_count()), []
    pool = ThreadPoolExecutor(side_by_side)
    try:
        seconds = list(pool.map(lambda task: train(task, folder, cpu_count() // side_by_side, running), tasks))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            process.terminate()  # a training that is stopped saves what it has
    return [row_of(task, folder, took) for task, took in zip(tasks, seconds, strict=True)]


def train(task: Task, folder: Path, threads: int, running: list[subprocess.Popen]) -> float:
    """Trains in a process of its own, whose output goes to a file, and returns the seconds.

    Args:
        task: The task that is trained.
        folder: The folder of the demo; gets the task's work dir and its output.
        threads: Number of threads, unless the user has set one.
        running: Processes; the new one is noted as long as it runs.

    Raises:
        TrainingStopped: If it ends with another exit status than 0, after the end of its output.
    """
    print(f'training  {task.name}: configs/digits/{task.config}', flush=True)
    begin, output = time.monotonic(), folder / f'{task.name}.log'
    command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(CONFIGS / task.config)]
    command += ['--work-dir', str(folder / task.name)]
    environment = {'OMP_NUM_THREADS': str(threads), **os.environ}
    with output.open('w') as written:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, env=environment)
    running.append(process)
    status = process.wait()
    running.remove(process)
    if status:
        print('\n'.join(output.read_text(errors='replace').splitlines()[-SHOWN_LINES:]), file=sys.stderr)
        raise TrainingStopped(
            f'the {task.name} training failed with exit status {status}; all of its output is in {shown(output)}'
        )
    return time.monotonic() - begin


def row_of(task: Task, folder: Path, seconds: float) -> tuple[str, ...]:
    """The row of the table of a training that has ended; draws the picture."""
    from mmengine.config import Config
    from mmengine.logging import MMLogger

    from vitplug.runs.prediction.panels import save_predictions

    # The training's own log has the lines about the model.
    MMLogger.get_current_instance().setLevel('WARNING')
    value = last_record(folder / task.name, task.key) / task.scale
    title = f'{task.name}: {task.metric} {value:.3f} on held-out digits'
    cfg = Config.fromfile(CONFIGS / task.config)
    model = save_predictions(cfg, checkpoint_of(task, folder), folder / f'{task.name}.png', title)
    parameters = sum(p.numel() for p in model.parameters())
    return task.name, Path(task.config).stem, task.metric, f'{value:.3f}', f'{parameters:,}', f'{seconds:.0f}'


def last_record(work_dir: Path, key: str) -> float:
    """The last value of a metric in the records that mmengine keeps of a training."""
    files = sorted(work_dir.glob('*/vis_data/scalars.json'))
    records = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [record[key] for record in records if key in record][-1]


def checkpoint_of(task: Task, folder: Path) -> str:
    """The last checkpoint of a training."""
    return (folder / task.name / 'last_checkpoint').read_text().strip()


def shown(path: str | Path) -> str:
    """A path as a command takes it from the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith('..') else near


def next_steps(task: Task, folder: Path, data_root: Path) -> str:
    """What to do after the demo, as commands for the shell that started it."""
    tools = ROOT / 'tools'
    test = (sys.executable, tools / 'test.py', CONFIGS / task.config, checkpoint_of(task, folder))
    train = (sys.executable, tools / 'train.py', CONFIGS / task.next_config)
    data = f'  VITPLUG_DIGITS={shlex.quote(shown(data_root.absolute()))} '
    return '\n'.join(
        (
            '\nnext: evaluate a model again, train one with another plug for longer, or see docs/your_data.md',
            f'{data}{shlex.join(map(shown, test))} --work-dir work_dirs/test',
            f'{data}{shlex.join(map(shown, train))}',
        )
    )
