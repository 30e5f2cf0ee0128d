"""The demo: data, three trainings, one table, three pictures.

Slow imports stand in functions: wrong options are refused at once, even before the set-up.
"""

import argparse
import heapq
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vitplug.progress import StatusLine, spoken
from vitplug.spelling import hint
from vitplug.tables import format_table
from vitplug.threads import cores, thread_variables

ROOT = Path(__file__).resolve().parents[1]
DATA_ROOT = Path('data/digits')
HEADINGS = ('task', 'config', 'metric', 'value', 'parameters', 'seconds')
# The time left, as mmengine's log tells it after some iterations of a training.
TIME_LEFT = re.compile(r'(?:Epoch|Iter)\(train\) .* eta: (?:(\d+) days?, )?(\d+):(\d+):(\d+)')
SHOWN_LINES = 20


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
        scale: Divisor of a record, so that every value in the table is a share of one.
        seconds: About how long it takes on one of two quiet cores, the other one training, too.
        next_config: File under `configs/digits` to train next: the same task with another plug and more iterations.
    """

    name: str
    config: str
    metric: str
    key: str
    scale: float
    seconds: float = 1.0
    next_config: str = ''


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    task: Task
    value: float
    parameters: int
    seconds: float
    checkpoint: str = ''

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
    Task(
        'classification',
        'vit-mini-p4-cb_1xb32-7e_digits-32x32.py',
        'top-1',
        'accuracy/top1',
        100,
        seconds=126,
        next_config='vit-mini-p4-gab_1xb32-14e_digits-32x32.py',
    ),
    Task(
        'segmentation',
        'vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py',
        'mIoU',
        'mIoU',
        100,
        seconds=434,
        next_config='vit-mini-p8-gab_upernet_1xb8-1200i_digits-128x128.py',
    ),
    Task(
        'detection',
        'swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py',
        'segm mAP',
        'coco/segm_mAP',
        1,
        seconds=290,
        next_config='swin-mini-p4-w4-gab_mask-rcnn_1xb8-400i_digits-128x128.py',
    ),
)


# --- command line ---


def main(argv: Sequence[str] | None = None) -> None:
    """The command behind `make demo` and `tools/demo.py`; ends with status 2 for wrong options, 1 for a failure."""
    args = parser().parse_args(argv)
    if args.dry_run:
        print('\n'.join(f'{task.name}: configs/digits/{task.config}' for task in args.task))
        return
    try:
        run_demo(args.work_dir, args.data_root, args.task)
    except TrainingFailed as error:
        sys.exit(f'error: {error}')
    except KeyboardInterrupt:
        print('\nstopped', file=sys.stderr)
        sys.exit(130)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        description='Train and evaluate three small models; print a table, draw pictures.'
    )
    options.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    options.add_argument('--data-root', type=Path, default=DATA_ROOT, help='made where it is missing')
    names = ', '.join(task.name for task in TASKS)
    options.add_argument(
        '--task', type=tasks_named, default=TASKS, metavar='NAME[,NAME]', help=f'some of {names}; default all'
    )
    options.add_argument('--dry-run', action='store_true', help='say which configs would be trained, and stop')
    return options


def tasks_named(text: str) -> tuple[Task, ...]:
    """The tasks of a text such as 'segmentation,detection', in the demo's order.

    Raises:
        ArgumentTypeError: if a name is unknown, or there is none; names the tasks, and the closest one.
    """
    known = [task.name for task in TASKS]
    names = re.findall(r'[^\s,]+', text)
    for name in names:
        if name not in known:
            near = hint(name, known)
            raise argparse.ArgumentTypeError(f'{name!r} is no task: expected {", ".join(known)}{near}')
    if not names:
        raise argparse.ArgumentTypeError(f'{text!r} names no task: expected {", ".join(known)}')
    return tuple(task for task in TASKS if task.name in names)


# --- the run ---


def run_demo(parent: Path, data_root: Path, tasks: Sequence[Task] = TASKS) -> Path:
    """Makes the data, trains and evaluates every task, and writes a table and a picture per task.

    Args:
        parent: Folder in which a folder named after the time is made.
        data_root: Folder of the data; made where it is missing.
        tasks: The tasks to train.

    Returns:
        The folder with everything in it.

    Raises:
        TrainingFailed: if a training fails; names the task and its log.
    """
    from vitplug.datasets.digit_scenes import make_digit_scenes

    folder = parent.absolute() / datetime.now().strftime('%Y%m%d_%H%M%S')
    folder.mkdir(parents=True)
    # The configs read this variable, in this process and in the trainings' own.
    os.environ['VITPLUG_DIGITS'] = str(data_root.absolute())
    make_digit_scenes(data_root)
    results = train_all(tasks, folder)
    table = format_table([HEADINGS, *(result.row() for result in results)])
    (folder / 'results.txt').write_text(table + '\n')
    print(f'\n{table}\n\ntable     {shown(folder / "results.txt")}')
    for task in tasks:
        print(f'picture   {shown(picture_path(task, folder))}')
    print('\n'.join(('', *next_steps(results[0], data_root))))
    return folder


def train_all(tasks: Sequence[Task], folder: Path) -> list[Result]:
    """Trains tasks side by side, one for each core, and draws their predictions; the results are in the tasks' order.

    Small models gain little from a second thread, which waits for the first one most of the time.

    Raises:
        TrainingFailed: if a training fails; the others are stopped.
    """
    side_by_side = min(len(tasks), cores())
    waiting, running, progress = deque(tasks), [], Progress()
    results = {}
    try:
        while waiting or running:
            ended = [training for training in running if training.poll()]
            running = [training for training in running if training not in ended]
            while waiting and len(running) < side_by_side:
                running.append(Training(waiting.popleft(), folder, cores() // side_by_side))
                progress.line.say(f'training  {running[-1].task.name}: configs/digits/{running[-1].task.config}')
            for training in ended:
                progress.finish(training)
                results[training.task.name] = training.result()
            if running:
                progress.show(running, waiting)
                time.sleep(1)
    finally:
        for training in running:
            training.stop()
    return [results[task.name] for task in tasks]


class Training:
    """A training in a process of its own, which begins at once; its output goes to a file.

    Args:
        task: The task that is trained.
        folder: The folder of the demo; gets the task's work dir, its output and its picture.
        threads: Number of threads, unless the user has set one.
        clock: Gives the time in seconds.

    Attributes:
        begin: Time of the clock at the beginning.
        end: Time at which it will have ended, as far as its log tells, None before it does.
    """

    def __init__(
        self,
        task: Task,
        folder: Path,
        threads: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.task, self.clock = task, clock
        self.config = ROOT / 'configs' / 'digits' / task.config
        self.work_dir, self.output = folder / task.name, folder / f'{task.name}.log'
        self.picture = picture_path(task, folder)
        command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(self.config)]
        command += ['--work-dir', str(self.work_dir)]
        self.begin, self.end = clock(), None
        with self.output.open('w') as written:
            self.process = subprocess.Popen(
                command, stdout=written, stderr=subprocess.STDOUT, env=os.environ | thread_variables(threads)
            )
        self.read = self.output.open(errors='replace')

    def poll(self) -> bool:
        """Reads what the training has written since the last time; true once it has ended.

        Raises:
            TrainingFailed: if it ended with another exit status than 0; the end of its output is in the message.
        """
        status = self.process.poll()
        for match in TIME_LEFT.finditer(self.read.read()):
            days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
            self.end = self.clock() + seconds + 60 * (minutes + 60 * (hours + 24 * days))
        if status is not None:
            self.end = self.clock()
            self.read.close()
        if status:
            end = '\n'.join(self.output.read_text(errors='replace').splitlines()[-SHOWN_LINES:])
            raise TrainingFailed(
                f'the {self.task.name} training failed with exit status {status}; the end of its output, which is in '
                f'{shown(self.output)}:\n\n{end}'
            )
        return status is not None

    def value(self) -> float:
        """The value of the task's metric."""
        return last_record(self.work_dir, self.task.key) / self.task.scale

    def result(self) -> Result:
        """The row of the table; draws the picture."""
        from mmengine.config import Config
        from mmengine.logging import MMLogger

        from vitplug.analysis.prediction_panels import load_trained, save_predictions

        # The training's own log has the lines about the model.
        MMLogger.get_current_instance().setLevel('WARNING')
        cfg = Config.fromfile(self.config)
        checkpoint = (self.work_dir / 'last_checkpoint').read_text().strip()
        model, dataset = load_trained(cfg, checkpoint)
        title = f'{self.task.name}: {self.task.metric} {self.value():.3f} on held-out digits'
        save_predictions(model, dataset, cfg.default_scope, self.picture, title)
        parameters = sum(p.numel() for p in model.parameters())
        return Result(self.task, self.value(), parameters, self.end - self.begin, checkpoint)

    def stop(self) -> None:
        """Ends the training before its time; it saves what it has."""
        self.process.terminate()
        self.process.wait()


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


def shown(path: str | Path) -> str:
    """A path as a command takes it from the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith('..') else near


def typed(path: str | Path) -> str:
    """The same with the quotes that a shell needs."""
    return shlex.quote(shown(path))


def next_steps(result: Result, data_root: Path) -> tuple[str, ...]:
    """Lines with what to do after the demo, as commands for the shell that started it."""
    task, default = result.task, data_root.absolute() == DATA_ROOT.absolute()
    variable = '' if default else f'VITPLUG_DIGITS={typed(data_root)} '
    configs, tools = ROOT / 'configs' / 'digits', ROOT / 'tools'
    test = (sys.executable, tools / 'test.py', configs / task.config, result.checkpoint)
    train = (sys.executable, tools / 'train.py', configs / task.next_config)
    return (
        'next: evaluate a model again, train one with another plug and the whole schedule, or see docs/your_data.md',
        f'  {variable}{" ".join(map(typed, test))} --work-dir work_dirs/test',
        f'  {variable}{" ".join(map(typed, train))}',
    )


class Progress:
    """The line with the state of the demo.

    Args:
        line: Where it is shown.
        clock: Gives the time in seconds.

    Attributes:
        slowness: The time of the trainings, as a multiple of the time on two quiet cores.
    """

    def __init__(self, line: StatusLine | None = None, clock: Callable[[], float] = time.monotonic):
        self.line, self.clock = line or StatusLine(), clock
        self.begin, self.slowness = clock(), 1.0

    def show(self, running: Sequence[Training], waiting: Iterable[Task]) -> None:
        """Shows how far the trainings are, and the time left until the last one ends."""
        known = [training for training in running if training.end]
        if known:
            self._measure(known)
        now = self.clock()
        states = []
        for training in running:
            share = (now - training.begin) / (training.end - training.begin) if training.end else 0
            states.append(f'{training.task.name} {min(99, int(100 * share))} %')
        left = self.seconds_left(running, waiting)
        # The log gives no time left for an evaluation.
        rest = f'about {spoken(left)} left' if left >= 1 else 'nearly done'
        self.line.show(f'{spoken(now - self.begin)} so far, {rest}; {", ".join(states)}')

    def seconds_left(self, running: Sequence[Training], waiting: Iterable[Task]) -> float:
        """Seconds until the last training ends; one that waits begins when another one ends."""
        now = self.clock()
        ends = [
            max(0.0, (training.end or training.begin + self.slowness * training.task.seconds) - now)
            for training in running
        ]
        heapq.heapify(ends)
        for task in waiting:
            heapq.heapreplace(ends, ends[0] + self.slowness * task.seconds)
        return max(ends)

    def finish(self, training: Training) -> None:
        """Shows the result of a training that has ended."""
        self._measure([training])
        task, took = training.task, spoken(training.end - training.begin)
        self.line.say(f'result    {task.name}: {task.metric} {training.value():.3f} after {took}')

    def _measure(self, trainings: Sequence[Training]) -> None:
        took = sum(training.end - training.begin for training in trainings)
        self.slowness = took / sum(training.task.seconds for training in trainings)
