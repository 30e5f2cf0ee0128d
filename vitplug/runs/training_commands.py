"""The commands behind `tools/train.py` and `tools/test.py`."""

import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from vitplug.checkpoints.safe_loading import allow_pickled_code, refuse_pickled_code
from vitplug.config.checks import check_no_pickles
from vitplug.errors.full_disks import explained_writes
from vitplug.errors.one_line import SETTINGS, fail, interruptible, one_line_errors, printable
from vitplug.errors.peers import announce, lost_peers, stop_watching, tell_of, watch_peers
from vitplug.errors.stops import Interrupted, TrainingStopped
from vitplug.errors.traceback_part import failing_part
from vitplug.errors.unknown_types import explained_types
from vitplug.files.readers import refuse_code_in_files
from vitplug.files.web import name_addresses
from vitplug.tasks import TASKS

from .checks import check_testing, check_training
from .checks.strategy import is_sharded_run
from .data.workers import deaths_of_workers
from .exported import read_notes, run_exported
from .hooks.checkpoint_fit import CheckpointFitHook
from .hooks.compilation import CompileHook
from .hooks.hook_states import HookStatesHook
from .hooks.validation_loss import ValidationLossHook
from .launch import is_first_process, start_processes
from .options import test_config, test_parser, train_config, train_parser
from .restarts import go_on, meet, start_alike
from .saving.checkpoint_checks import bare_model
from .saving.folders import check_run_folders, choose_start, older_checkpoint_named, run_folders
from .saving.lock import only_training

# After Ctrl-C before the training listens for it, or without the hook that does.
GOES_ON = 'the checkpoints in the work dir stay: --resume goes on from the last one'


def train(argv: Sequence[str] | None = None) -> None:
    """Trains the model of a config.

    A wrong setting ends in one line and exit status 2, and a training that stops before its time in one line and the
    status of its reason (`vitplug.errors.stops`).
    """
    args = _parse(train_parser(), argv)
    run_training(lambda: train_config(args), args.unsafe_unpickle, args.allow_changes)


def run_training(read: Callable[[], Config], unsafe_unpickle: bool = False, allow_changes: bool = False) -> None:
    """Trains as `tools/train.py` does, and ends with its exit statuses.

    Args:
        read: Gives the config, with `launcher` and `work_dir`; its errors are those of wrong settings.
        unsafe_unpickle: Whether files that the config names may run code of their own.
        allow_changes: Whether a checkpoint may have been trained with other settings.
    """
    with ExitStack() as held, one_line_errors(Interrupted), interruptible(GOES_ON):
        with one_line_errors(*SETTINGS), explained_writes():
            cfg = read()
            go_on(cfg, meet() if cfg.launcher == 'pytorch' else None)
            remarks = check_training(cfg)
            choose_readers(cfg, unsafe_unpickle)
            if is_first_process(cfg.launcher):
                held.enter_context(only_training(run_folders(cfg)))
            check_run_folders(cfg)
        runner = build_runner(cfg, allow_changes, remarks)
        choose_start(runner)
        start_alike(runner)
        with reported(runner), older_checkpoint_named(cfg):
            runner.train()
        leave_process_group()


def test(argv: Sequence[str] | None = None) -> None:
    """Evaluates a checkpoint. A wrong setting ends in one line and exit status 2."""
    args = _parse(test_parser(), argv)
    with one_line_errors(Interrupted), interruptible('there is no result'):
        with one_line_errors(*SETTINGS), explained_writes():
            cfg = test_config(args)
            remarks = check_testing(cfg)
            choose_readers(cfg, args.unsafe_unpickle)
            if args.exported is not None:
                read_notes(Path(args.exported))
        runner = build_runner(cfg, args.allow_changes, remarks)
        if args.exported is not None:
            with one_line_errors(*SETTINGS):
                run_exported(bare_model(runner.model), args.exported, TASKS[cfg.default_scope], args.checkpoint)
        with reported(runner):
            runner.test()
        leave_process_group()


def _parse(parser: ArgumentParser, argv: Sequence[str] | None) -> Namespace:
    name_addresses()
    # On a full disk every log line would show a traceback; the next scalar or checkpoint says it once.
    logging.raiseExceptions = False
    return parser.parse_args(argv)


def choose_readers(cfg: Config, unsafe_unpickle: bool) -> None:
    """Chooses the readers of files that a config names.

    Raises:
        ValueError: if a data set reads a file that can run code, and this is not allowed.
    """
    if unsafe_unpickle:
        return allow_pickled_code()
    check_no_pickles(cfg)
    refuse_pickled_code()
    refuse_code_in_files()


def leave_process_group() -> None:
    """Lets all processes end together: gloo aborts one whose peer is gone before it."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        stop_watching()
        distributed.destroy_process_group()


def build_runner(cfg: Config, allow_changes: bool = False, remarks: Sequence[str] = ()) -> Runner:
    """Builds mmengine's runner, for its strategy or named by `runner_type`; it refuses checkpoints that do not fit.

    Args:
        cfg: The config.
        allow_changes: Whether a checkpoint may have been trained with other settings.
        remarks: Lines for the log.
    """
    with one_line_errors(*SETTINGS), explained_types(cfg), explained_writes(cfg.work_dir), lost_peers():
        start_processes(cfg)
        watch_peers()
        if 'model' not in cfg:
            raise ValueError(f'{cfg.filename}: the config has no `model`; name the config of a whole training')
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else runner_class(cfg).from_cfg(cfg)
    watch_peers()
    checks = [hook for hook in runner.hooks if isinstance(hook, CheckpointFitHook)]
    for hook in checks:
        hook.allow_changes |= allow_changes
    if not checks:
        runner.register_hook(CheckpointFitHook(allow_changes))
    for kind in (CompileHook, HookStatesHook, ValidationLossHook):
        if not any(isinstance(hook, kind) for hook in runner.hooks):
            runner.register_hook(kind())
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


@contextmanager
def reported(runner: Runner) -> Iterator[None]:
    """Turns an early end of a training or a test into one line and an exit status."""
    with (
        statuses_of_stops(runner.logger),
        settings_errors(runner),
        explained_types(runner.cfg),
        explained_writes(runner.work_dir),
        lost_peers(),
        deaths_of_workers(runner),
    ):
        yield


@contextmanager
def statuses_of_stops(logger: logging.Logger) -> Iterator[None]:
    """Turns an end before its time into one line in the log, one on stderr and its exit status."""
    try:
        yield
    except TrainingStopped as stop:
        # A worker of a loader hands its error on with a traceback; the message is its last line.
        message = str(stop).strip().splitlines()[-1].removeprefix(f'{type(stop).__module__}.{type(stop).__name__}: ')
        logger.error(printable(message))
        announce(printable(message), stop.status, together=isinstance(stop, Interrupted))
        sys.exit(stop.status)
    except Exception as error:
        tell_of(error)
        raise


class FirstBatch(Hook):
    """Notes when the first batch of a training or a test is done, and with it every setting was used."""

    priority = 'LOWEST'
    done = False

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.done = True


@contextmanager
def settings_errors(runner: Runner) -> Iterator[None]:
    """Turns errors up to the first batch into one line that names the part of the model.

    Wrong settings fail until then: mmengine builds most parts late, and parts that do not fit fail when they run.
    Later errors keep their traceback.
    """
    first_batch = FirstBatch()
    runner.register_hook(first_batch)
    try:
        yield
    except SETTINGS as error:
        if first_batch.done or isinstance(error, TrainingStopped):
            raise
        fail(error, failing_part(error, runner.model))
