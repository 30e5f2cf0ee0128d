"""The commands behind `tools/train.py` and `tools/test.py`."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import NoReturn

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from .checkpoint_fit import CheckpointFitHook
from .checks import check_no_pickles, check_testing, check_training
from .culprit import failing_part
from .launch import start_cpu_processes
from .options import test_config, test_parser, train_config, train_parser
from .safe_loading import refuse_pickled_code
from .stops import TrainingStopped

# What wrong settings end in, mmengine's errors included.
SETTINGS = (
    ValueError,
    OSError,
    ImportError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    RuntimeError,
    UnpicklingError,
)


def train(argv: Sequence[str] | None = None) -> None:
    """Trains the model of a config.

    A wrong setting ends in one line and exit status 2, and a training that stops before its time in one line and the
    status of its reason (`vitplug.engine.stops`).
    """
    args = train_parser().parse_args(argv)
    with one_line_errors(*SETTINGS):
        cfg = train_config(args)
        check_training(cfg)
        if not args.unsafe_unpickle:
            check_no_pickles(cfg)
    if not args.unsafe_unpickle:
        refuse_pickled_code()
    runner = build_runner(cfg, args.allow_changes)
    with statuses_of_stops(runner.logger), settings_errors(runner):
        runner.train()
    leave_process_group()


def test(argv: Sequence[str] | None = None) -> None:
    """Evaluates a checkpoint. A wrong setting ends in one line and exit status 2."""
    args = test_parser().parse_args(argv)
    with one_line_errors(*SETTINGS):
        cfg = test_config(args)
        check_testing(cfg)
        if not args.unsafe_unpickle:
            check_no_pickles(cfg)
    if not args.unsafe_unpickle:
        refuse_pickled_code()
    runner = build_runner(cfg, args.allow_changes)
    with statuses_of_stops(runner.logger), settings_errors(runner):
        runner.test()
    leave_process_group()


def leave_process_group() -> None:
    """Lets all processes end together: gloo aborts one whose peer is gone before it."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def build_runner(cfg: Config, allow_changes: bool = False) -> Runner:
    """Builds mmengine's runner, or the one named by `runner_type`; it refuses checkpoints that do not fit.

    Args:
        cfg: The config.
        allow_changes: Whether a checkpoint may have been trained with other settings.
    """
    start_cpu_processes(cfg)
    with one_line_errors(*SETTINGS):
        if 'model' not in cfg:
            raise ValueError(f'{cfg.filename}: the config has no `model`; name the config of a whole training')
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    checks = [hook for hook in runner.hooks if isinstance(hook, CheckpointFitHook)]
    for hook in checks:
        hook.allow_changes |= allow_changes
    if not checks:
        runner.register_hook(CheckpointFitHook(allow_changes))
    keep_parameter_lists_off_the_terminal(runner.logger)
    return runner


def keep_parameter_lists_off_the_terminal(logger: logging.Logger) -> None:
    """Leaves mmengine's line per parameter and optimizer setting, hundreds in all, to the log file."""
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(lambda record: not record.getMessage().startswith('paramwise_options'))


@contextmanager
def statuses_of_stops(logger: logging.Logger) -> Iterator[None]:
    """Turns an end before its time into one line in the log, one on stderr and its exit status."""
    try:
        yield
    except TrainingStopped as stop:
        # A worker of a loader hands its error on with a traceback; the message is its last line.
        message = str(stop).strip().splitlines()[-1].removeprefix(f'{type(stop).__module__}.{type(stop).__name__}: ')
        logger.error(printable(message))
        if os.environ.get('RANK', '0') == '0':
            print('error:', printable(message), file=sys.stderr)
        sys.exit(stop.status)


@contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of some kinds into one line on stderr and exit status 2."""
    try:
        yield
    except kinds as error:
        fail(error)


def fail(error: Exception, part: str = '') -> NoReturn:
    """Ends with one line on stderr and exit status 2; the traceback goes to the log file, where there is one already.

    Args:
        error: What went wrong.
        part: Where in the model.
    """
    # The type is told where the message may not say enough by itself.
    kind = '' if isinstance(error, ValueError | OSError | ImportError) else f'{type(error).__name__}: '
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    if os.environ.get('RANK', '0') == '0':
        print('error:', printable(part + kind + ' '.join(text.split())) + _log_traceback(error), file=sys.stderr)
    sys.exit(2)


def printable(text: str) -> str:
    """A message without characters that a terminal acts on; files can have them in names."""
    return ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _log_traceback(error: Exception) -> str:
    """Writes a traceback into the log files and names them, or nothing where none is needed or there are none."""
    logger = MMLogger.get_current_instance()
    files = [handler for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    trace = (type(error), error, error.__traceback__)
    for file in files:
        file.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 0, 'nothing was run', (), trace))
    return f' (more in {", ".join(os.path.relpath(file.baseFilename) for file in files)})' if files else ''


class FirstBatch(Hook):
    """Notes when the first batch of a training or a test is through, and so every setting was of use."""

    priority = 'LOWEST'
    done = False

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True


@contextmanager
def settings_errors(runner: Runner) -> Iterator[None]:
    """Turns what fails up to the first batch into one line that names the part of the model.

    Settings fail there: mmengine builds most parts late, and that two do not fit shows when they are run. What fails
    later keeps its traceback.
    """
    first_batch = FirstBatch()
    runner.register_hook(first_batch)
    try:
        yield
    except SETTINGS as error:
        if first_batch.done or isinstance(error, TrainingStopped):
            raise
        fail(error, failing_part(error, runner.model))
