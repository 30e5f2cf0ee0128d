"""The commands behind `tools/train.py` and `tools/test.py`.

A training is mmengine's: `Runner.from_cfg(cfg).train()`. Before it, the config and its data are checked and the
checkpoint to go on from is named. What vitplug adds while it runs are the hooks of the config (`default_hooks`) and
those of :data:`ALWAYS`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from vitplug.checkpoints.safe_loading import allow_pickled_code, refuse_pickled_code
from vitplug.errors.one_line import SETTINGS, fail, one_line_errors
from vitplug.errors.stops import TrainingStopped
from vitplug.errors.traceback_part import failing_part
from vitplug.errors.unknown_types import explained_types
from vitplug.files.readers import refuse_code_in_files
from vitplug.tasks import TASKS

from .checks import check_testing, check_training
from .checks.strategy import is_sharded_run
from .exported import read_notes, run_exported
from .hooks import CompileHook, DryValidationHook, ValidationLossHook
from .launch import start_processes
from .options import test_config, test_parser, train_config, train_parser
from .saving.checkpoint_checks import CheckpointFitHook, bare_model
from .saving.folders import choose_start

# Hooks that every training and test has, whatever its config.
ALWAYS: tuple[type[Hook], ...] = (CheckpointFitHook, CompileHook, DryValidationHook, ValidationLossHook)


def train(argv: Sequence[str] | None = None) -> None:
    """Trains the model of a config; a wrong setting ends in one line and exit status 2."""
    args = train_parser().parse_args(argv)
    run_training(lambda: train_config(args), args.unsafe_unpickle, args.allow_changes)


def run_training(read: Callable[[], Config], unsafe_unpickle: bool = False, allow_changes: bool = False) -> None:
    """Trains as `tools/train.py` does, and ends with its exit statuses.

    Args:
        read: Gives the config, with `launcher` and `work_dir`; its errors are those of wrong settings.
        unsafe_unpickle: Whether files that the config names may run code of their own.
        allow_changes: Whether a checkpoint may have been trained with other settings.
    """
    with one_line_errors(*SETTINGS):
        cfg = read()
        choose_start(cfg)
        choose_readers(cfg, unsafe_unpickle)
        remarks = check_training(cfg)
    runner = build_runner(cfg, allow_changes, remarks)
    with ends_in_one_line(runner):
        runner.train()
    leave_process_group()


def test(argv: Sequence[str] | None = None) -> None:
    """Evaluates a checkpoint; a wrong setting ends in one line and exit status 2."""
    args = test_parser().parse_args(argv)
    with one_line_errors(*SETTINGS):
        cfg = test_config(args)
        choose_readers(cfg, args.unsafe_unpickle)
        remarks = check_testing(cfg)
        if args.exported is not None:
            read_notes(Path(args.exported))
    runner = build_runner(cfg, args.allow_changes, remarks)
    with ends_in_one_line(runner):
        if args.exported is not None:
            run_exported(bare_model(runner.model), args.exported, TASKS[cfg.default_scope], args.checkpoint)
        runner.test()
    leave_process_group()


def choose_readers(cfg: Config, unsafe_unpickle: bool) -> None:
    """Chooses the readers of files that a config names.

    Raises:
        ValueError: If a data set reads a file that can run code, and this is not allowed.
    """
    if unsafe_unpickle:
        return allow_pickled_code()
    refuse_pickled_code()
    refuse_code_in_files()


def build_runner(cfg: Config, allow_changes: bool = False, remarks: Sequence[str] = ()) -> Runner:
    """Builds mmengine's runner, for its strategy or named by `runner_type`, with the hooks of :data:`ALWAYS`.

    Args:
        cfg: The config.
        allow_changes: Whether a checkpoint may have been trained with other settings.
        remarks: Lines for the log.
    """
    with one_line_errors(*SETTINGS), explained_types(cfg):
        if 'model' not in cfg:
            raise ValueError(f'{cfg.filename}: the config has no `model`; name the config of a whole training')
        start_processes(cfg)
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else runner_class(cfg).from_cfg(cfg)
    for kind in ALWAYS:
        if not any(isinstance(hook, kind) for hook in runner.hooks):
            runner.register_hook(kind())
    for hook in runner.hooks:
        if isinstance(hook, CheckpointFitHook):
            hook.allow_changes |= allow_changes
    keep_parameter_lists_off_the_terminal(runner.logger)
    for remark in remarks:
        runner.logger.warning(remark)
    return runner


def runner_class(cfg: Config) -> type[Runner]:
    """mmengine's runner, or the one that shards the model as `strategy` says."""
    if not is_sharded_run(cfg):
        return Runner
    from .sharded_runner import ShardedRunner  # needs a later torch than the oldest supported one

    return ShardedRunner


def keep_parameter_lists_off_the_terminal(logger: logging.Logger) -> None:
    """Leaves mmengine's line per parameter and optimizer setting, hundreds in all, to the log file."""
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(lambda record: not record.getMessage().startswith('paramwise_options'))


class FirstBatch(Hook):
    """Notes when the first batch of a training or a test is done, and with it every setting was used."""

    priority = 'LOWEST'
    done = False

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True


@contextmanager
def ends_in_one_line(runner: Runner) -> Iterator[None]:
    """Turns a stop, and errors up to the first batch, into one line that names the part of the model.

    Wrong settings fail until then: mmengine builds most parts late, and parts that do not fit fail when they run.
    Later errors keep their traceback.
    """
    first_batch = FirstBatch()
    runner.register_hook(first_batch)
    try:
        with explained_types(runner.cfg):
            yield
    except TrainingStopped as stop:
        # A worker of a loader hands its error on with a traceback; the message is its last line.
        message = str(stop).strip().splitlines()[-1].removeprefix(f'{type(stop).__module__}.{type(stop).__name__}: ')
        fail(type(stop)(message))
    except SETTINGS as error:
        if first_batch.done:
            raise
        fail(error, failing_part(error, runner.model))


def leave_process_group() -> None:
    """Lets all processes end together: gloo aborts one whose peer is gone before it."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
