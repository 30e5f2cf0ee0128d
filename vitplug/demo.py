"""The demo: data, three trainings, one table, three pictures."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from vitplug.errors import TrainingStopped, one_line_errors
from vitplug.files.config_paths import configs_folder
from vitplug.tables import format_table

CONFIGS = (configs_folder('vitplug') / 'digits').resolve()
HEADINGS = ('task', 'config', 'metric', 'value', 'parameters', 'seconds')


class Task(NamedTuple):
    """One training of the demo."""

    config: str  # file under `configs/digits`
    metric: str  # in the table
    key: str  # of the metric in mmengine's records
    scale: float  # divisor of a record, so that every value in the table is a share of one


TASKS = {
    'classification': Task('vit-mini-p4-cb_1xb32-7e_digits-32x32.py', 'top-1', 'accuracy/top1', 100),
    'segmentation': Task('vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py', 'mIoU', 'mIoU', 100),
    'detection': Task('swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py', 'segm mAP', 'coco/segm_mAP', 1),
}


def main(argv: Sequence[str] | None = None) -> None:
    """The command behind `make demo` and `tools/demo.py`: makes the data, trains, writes a table and pictures.

    Each run has a new folder, named after the time. The data are made where they are missing: in `data/digits`, or in
    $VITPLUG_DIGITS, as the configs have it.
    """
    parser = argparse.ArgumentParser(description='Train and evaluate three small models; print a table, draw pictures.')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    parser.add_argument('--task', nargs='+', choices=TASKS, default=[*TASKS], help='default all')
    args = parser.parse_args(argv)
    with one_line_errors():
        from vitplug.datasets.digit_scenes import make_digit_scenes

        folder = args.work_dir / datetime.now().strftime('%Y%m%d_%H%M%S')
        folder.mkdir(parents=True)
        make_digit_scenes(os.environ.get('VITPLUG_DIGITS', 'data/digits'))
        begin = time.time()
        train_all(args.task, folder)
        table = format_table([HEADINGS, *(row_of(name, folder, begin) for name in args.task)])
    (folder / 'results.txt').write_text(table + '\n')
    print(f'\n{table}\n\ntable     {folder}/results.txt')
    for name in args.task:
        print(f'picture   {folder}/{name}.png')
    vitplug = f'{os.path.relpath(sys.executable)} -m vitplug'
    config = os.path.relpath(CONFIGS / TASKS[args.task[0]].config)
    print('\nnext: evaluate a model again, train one with another plug, or see docs/your_data.md')
    print(f'  {vitplug} test {config} {os.path.relpath(checkpoint_of(folder / args.task[0]))}')
    print(f'  {vitplug} train {config} --plugs gab')


def train_all(names: Sequence[str], folder: Path) -> None:
    """Trains tasks side by side, each in a process of its own with a share of the cores.

    Raises:
        TrainingStopped: If a training fails, when the others have ended; it has the last line of its output.
    """
    from joblib import cpu_count

    environment = {'OMP_NUM_THREADS': str(max(1, cpu_count() // len(names))), **os.environ}
    trainings = {}
    for name in names:
        print(f'training  {name}: configs/digits/{TASKS[name].config}', flush=True)
        command = [sys.executable, '-m', 'vitplug', 'train', CONFIGS / TASKS[name].config, '--work-dir', folder / name]
        with open(folder / f'{name}.log', 'w') as output:
            trainings[name] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    for name, status in [(name, training.wait()) for name, training in trainings.items()]:
        if status:
            output = folder / f'{name}.log'
            last = output.read_text(errors='replace').strip().rpartition('\n')[2]
            raise TrainingStopped(f'the {name} training failed with status {status}: {last} (all of it is in {output})')


def row_of(name: str, folder: Path, begin: float) -> tuple[str, ...]:
    """The row of the table of a training that began at a time and has ended; draws the picture."""
    from mmengine.config import Config
    from mmengine.logging import MMLogger

    from vitplug.runs.prediction import Predictor, save_panels

    # The training's own log has the lines about the model.
    MMLogger.get_current_instance().setLevel('WARNING')
    task, work_dir = TASKS[name], folder / name
    [records] = work_dir.glob('*/vis_data/scalars.json')
    values = [record[task.key] for record in map(json.loads, records.open()) if task.key in record]
    predictor = Predictor(Config.fromfile(CONFIGS / task.config), checkpoint_of(work_dir), score_thr=0.5)
    save_panels(predictor, folder / f'{name}.png')
    parameters = sum(p.numel() for p in predictor.model.parameters())
    seconds = records.stat().st_mtime - begin  # the last record is of the last validation
    value = f'{values[-1] / task.scale:.3f}'
    return name, Path(task.config).stem, task.metric, value, f'{parameters:,}', f'{seconds:.0f}'


def checkpoint_of(work_dir: Path) -> str:
    """The last checkpoint of a training."""
    return (work_dir / 'last_checkpoint').read_text().strip()
