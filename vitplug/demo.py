"""The demo: data, three trainings, one table, three pictures."""

import argparse
import json
import os
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
HEADINGS = ('task', 'config', 'metric', 'value', 'parameters', 'seconds')
SHOWN_LINES = 20


class Task(NamedTuple):
    """One training of the demo."""

    name: str  # of the task and of its folder
    config: str  # file under `configs/digits`
    metric: str  # in the table
    key: str  # of the metric in mmengine's records
    scale: float  # divisor of a record, so that every value in the table is a share of one


TASKS = (
    Task('classification', 'vit-mini-p4-cb_1xb32-7e_digits-32x32.py', 'top-1', 'accuracy/top1', 100),
    Task('segmentation', 'vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py', 'mIoU', 'mIoU', 100),
    Task('detection', 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py', 'segm mAP', 'coco/segm_mAP', 1),
)


def main(argv: Sequence[str] | None = None) -> None:
    """The command behind `make demo` and `tools/demo.py`: makes the data, trains, writes a table and pictures."""
    parser = argparse.ArgumentParser(description='Train and evaluate three small models; print a table, draw pictures.')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    names = [task.name for task in TASKS]
    parser.add_argument('--task', nargs='+', choices=names, default=names, help='default all')
    args = parser.parse_args(argv)
    with one_line_errors('stopped'):
        run_demo([task for task in TASKS if task.name in args.task], args.work_dir)


def run_demo(tasks: Sequence[Task], parent: Path) -> None:
    """Trains and evaluates tasks in a new folder, named after the time, and writes a table and pictures into it.

    The data are made where they are missing: in `data/digits`, or in $VITPLUG_DIGITS, as the configs have it.
    """
    from vitplug.datasets.digit_scenes import make_digit_scenes

    folder = parent / datetime.now().strftime('%Y%m%d_%H%M%S')
    folder.mkdir(parents=True)
    make_digit_scenes(Path(os.environ.get('VITPLUG_DIGITS', 'data/digits')))
    table = format_table([HEADINGS, *train_all(tasks, folder)])
    (folder / 'results.txt').write_text(table + '\n')
    print(f'\n{table}\n\ntable     {folder}/results.txt')
    for task in tasks:
        print(f'picture   {folder}/{task.name}.png')
    config = shown(CONFIGS / tasks[0].config)
    print('\nnext: evaluate a model again, train one with another plug, or see docs/your_data.md')
    print(f'  {shown(sys.executable)} -m vitplug test {config} {checkpoint_of(tasks[0], folder)}')
    print(f'  {shown(sys.executable)} -m vitplug train {config} --plugs gab')


def train_all(tasks: Sequence[Task], folder: Path) -> list[tuple[str, ...]]:
    """Trains tasks side by side, one for each core, draws their predictions and returns the rows of the table.

    Small models gain little from a second thread, which waits for the first one most of the time.

    Raises:
        TrainingStopped: If a training fails, when the others have ended.
    """
    from joblib import cpu_count

    side_by_side = min(len(tasks), cpu_count())
    with ThreadPoolExecutor(side_by_side) as pool:
        seconds = list(pool.map(lambda task: train(task, folder, cpu_count() // side_by_side), tasks))
    return [row_of(task, folder, took) for task, took in zip(tasks, seconds, strict=True)]


def train(task: Task, folder: Path, threads: int) -> float:
    """Trains in a process of its own and returns the seconds.

    Raises:
        TrainingStopped: If it ends with another exit status than 0, after the end of its output.
    """
    print(f'training  {task.name}: configs/digits/{task.config}', flush=True)
    begin, output = time.monotonic(), folder / f'{task.name}.log'
    command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(CONFIGS / task.config)]
    command += ['--work-dir', str(folder / task.name)]
    environment = {'OMP_NUM_THREADS': str(threads), **os.environ}
    with output.open('w') as written:
        status = subprocess.call(command, stdout=written, stderr=subprocess.STDOUT, env=environment)
    if status:
        print('\n'.join(output.read_text(errors='replace').splitlines()[-SHOWN_LINES:]), file=sys.stderr)
        raise TrainingStopped(f'the {task.name} training failed with exit status {status}; all of it is in {output}')
    return time.monotonic() - begin


def row_of(task: Task, folder: Path, seconds: float) -> tuple[str, ...]:
    """The row of the table of a training that has ended; draws the picture."""
    from mmengine.config import Config
    from mmengine.logging import MMLogger

    from vitplug.runs.prediction import Predictor, save_panels

    # The training's own log has the lines about the model.
    MMLogger.get_current_instance().setLevel('WARNING')
    files = sorted((folder / task.name).glob('*/vis_data/scalars.json'))
    records = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    value = [record[task.key] for record in records if task.key in record][-1] / task.scale
    cfg = Config.fromfile(CONFIGS / task.config)
    predictor = Predictor(cfg, checkpoint_of(task, folder), score_thr=0.5)
    save_panels(predictor, folder / f'{task.name}.png')
    parameters = sum(p.numel() for p in predictor.model.parameters())
    return task.name, Path(task.config).stem, task.metric, f'{value:.3f}', f'{parameters:,}', f'{seconds:.0f}'


def checkpoint_of(task: Task, folder: Path) -> str:
    """The last checkpoint of a training."""
    return (folder / task.name / 'last_checkpoint').read_text().strip()


def shown(path: str | Path) -> str:
    """A path as a command takes it from the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith('..') else near
