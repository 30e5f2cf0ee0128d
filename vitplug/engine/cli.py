"""The commands behind `tools/train.py` and `tools/test.py`."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mmengine.config import Config
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from .checks import check_testing, check_training
from .launch import start_cpu_processes
from .options import test_config, test_parser, train_config, train_parser
from .safe_loading import refuse_pickled_code
from .stops import TrainingStopped


def train(argv: Sequence[str] | None = None) -> None:
    """Trains the model of a config.

    A wrong setting ends in one line and exit status 2, and a training that stops before its time in one line and the
    status of its reason (`vitplug.engine.stops`).
    """
    args = train_parser().parse_args(argv)
    with one_line_errors(ValueError, OSError, ImportError):
        cfg = train_config(args)
        check_training(cfg)
    if not args.unsafe_unpickle:
        refuse_pickled_code()
    runner = build_runner(cfg)
    with statuses_of_stops(runner.logger):
        runner.train()
    leave_process_group()


def test(argv: Sequence[str] | None = None) -> None:
    """Evaluates a checkpoint. A wrong setting ends in one line and exit status 2."""
    args = test_parser().parse_args(argv)
    with one_line_errors(ValueError, OSError, ImportError):
        cfg = test_config(args)
        check_testing(cfg)
    if not args.unsafe_unpickle:
        refuse_pickled_code()
    runner = build_runner(cfg)
    with statuses_of_stops(runner.logger):
        runner.test()
    leave_process_group()


def leave_process_group() -> None:
    """Lets all processes end together: gloo aborts one whose peer is gone before it."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def build_runner(cfg: Config) -> Runner:
    """Builds mmengine's runner, or the one named by `runner_type`."""
    start_cpu_processes(cfg)
    # Only the build is covered: it fails on settings, while a failing training needs its traceback.
    with one_line_errors(ValueError):
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
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
        logger.error(message)
        if os.environ.get('RANK', '0') == '0':
            print('error:', message, file=sys.stderr)
        sys.exit(stop.status)


@contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of some kinds into one line on stderr and exit status 2."""
    try:
        yield
    except kinds as error:
        if os.environ.get('RANK', '0') == '0':
            print('error:', ' '.join(str(error).split()), file=sys.stderr)
        sys.exit(2)
