"""The demo: data, three trainings, one table, three pictures."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mmengine.config import Config

from vitplug.analysis.pictures import load_trained, save_predictions
from vitplug.analysis.tables import format_table
from vitplug.datasets.digit_scenes import make_digit_scenes

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = ('task', 'config', 'metric', 'value', 'parameters', 'seconds')


class TrainingFailed(RuntimeError):
    """A training of the demo ended with an error."""


@dataclass(frozen=True)
class Task:
    """One training of the demo.

    Attributes:
        name: Name of the task and of its folder.
        config: File under `configs/digits`.
        metric: Name of the metric in the table.
        key: Its name in mmengine's records.
        scale: What a record is divided by, so that every value in the table is a share of one.
    """

    name: str
    config: str
    metric: str
    key: str
    scale: float


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    task: Task
    value: float
    parameters: int
    seconds: float

    def row(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEADINGS`."""
        return (
            self.task.name,
            Path(self.task.config).stem,
            self.task.metric,
            f'{self.value:.3f}',
            f'{self.parameters:,}',
            f'{self.seconds:.0f}',
        )


TASKS = (
    Task('classification', 'vit-mini-p4-cb_1xb32-14e_digits-32x32.py', 'top-1', 'accuracy/top1', 100),
    Task('segmentation', 'vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py', 'mIoU', 'mIoU', 100),
    Task('detection', 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-400i_digits-128x128.py', 'segm mAP', 'coco/segm_mAP', 1),
)


def run_demo(parent: Path, data_root: Path, tasks: Sequence[Task] = TASKS, options: Sequence[str] = ()) -> Path:
    """Makes the data, trains and evaluates every task, and writes a table and a picture per task.

    Args:
        parent: Folder in which a folder named after the time is made.
        data_root: Folder of the data; made where it is missing.
        tasks: What to train.
        options: More options of `tools/train.py`.

    Returns:
        The folder with everything in it.

    Raises:
        TrainingFailed: if a training fails; names the task and its log.
    """
    folder = parent.absolute() / datetime.now().strftime('%Y%m%d_%H%M%S')
    folder.mkdir(parents=True)
    # The configs read this variable, here and in the trainings' own processes.
    os.environ['VITPLUG_DIGITS'] = str(data_root.absolute())
    make_digit_scenes(data_root)
    results = []
    for number, task in enumerate(tasks, start=1):
        print(f'\n=== {number}/{len(tasks)} {task.name}: {task.config} ===\n', flush=True)
        results.append(run_task(task, folder, options))
    table = format_table([HEADINGS, *(result.row() for result in results)])
    (folder / 'results.txt').write_text(table + '\n')
    print(f'\n{table}\n\ntable     {folder / "results.txt"}')
    for task in tasks:
        print(f'picture   {picture_path(task, folder)}')
    return folder


def run_task(task: Task, folder: Path, options: Sequence[str] = ()) -> Result:
    """Trains one task in a process of its own and draws its predictions.

    Raises:
        TrainingFailed: if the training fails.
    """
    config, work_dir = ROOT / 'configs' / 'digits' / task.config, folder / task.name
    start = time.monotonic()
    train(task, config, work_dir, options)
    seconds = time.monotonic() - start
    value = last_record(work_dir, task.key) / task.scale
    cfg = Config.fromfile(config)
    checkpoint = (work_dir / 'last_checkpoint').read_text().strip()
    model, dataset = load_trained(cfg, checkpoint)
    title = f'{task.name}: {task.metric} {value:.3f} on held-out digits'
    save_predictions(model, dataset, cfg.default_scope, picture_path(task, folder), title)
    return Result(task, value, sum(p.numel() for p in model.parameters()), seconds)


def train(task: Task, config: Path, work_dir: Path, options: Sequence[str] = ()) -> None:
    """Runs `tools/train.py`; its progress goes to the terminal.

    Raises:
        TrainingFailed: if it ends with another exit status than 0.
    """
    command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(config), '--work-dir', str(work_dir), *options]
    status = subprocess.run(command).returncode
    if status:
        logs = sorted(work_dir.glob('*/*.log'))
        log = f'its log is {logs[-1]}' if logs else 'it ended before it wrote a log; its message is above'
        raise TrainingFailed(f'the {task.name} training failed with exit status {status}; {log}')


def last_record(work_dir: Path, key: str) -> float:
    """The last value of a metric in the records that mmengine keeps of a training.

    Raises:
        KeyError: if the metric was never recorded.
    """
    values = [
        record[key]
        for path in sorted(work_dir.glob('*/vis_data/scalars.json'))
        for record in map(json.loads, path.read_text().splitlines())
        if key in record
    ]
    if not values:
        raise KeyError(f'no record of {key} under {work_dir}')
    return values[-1]


def picture_path(task: Task, folder: Path) -> Path:
    """Where the picture of a task goes."""
    return folder / f'{task.name}.png'
