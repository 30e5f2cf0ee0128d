"""Ends a training on a signal without losing anything, and finishes on resume what an interruption cut off."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial

from mmengine import dist
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.errors.stops import Interrupted
from vitplug.registry import HOOKS

from ..processes import any_process
from .checkpoint import CheckpointHook

SIGNALS = ('SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1')


@HOOKS.register_module()
class InterruptionHook(Hook):
    """On a signal saves at the end of the iteration and stops; on resume runs a validation that was cut off.

    Schedulers send SIGTERM or SIGUSR1 before they kill a job, a terminal SIGHUP when it is closed and SIGINT for
    Ctrl-C. The checkpoint goes to `interrupted.pth`, and the training raises `Interrupted`, which `tools/train.py`
    turns into exit status 75. A signal during a validation saves the state from before it. Signals that come after
    the first change nothing, up to the end of the process; SIGQUIT (Ctrl-\\) and SIGKILL end it at once.

    A signal that the process was told to ignore, as `nohup` does with SIGHUP, stays ignored, and Ctrl-C keeps its
    meaning in an interactive Python.

    mmengine writes a checkpoint before it validates the same state. A training killed in between would resume behind
    the validation and never report it, so this hook runs it on resume.

    Args:
        signals: Names of the signals; by default SIGTERM, SIGINT, SIGHUP and SIGUSR1.
        interval: In how many iterations the processes of a distributed training ask each other whether one of them
            got a signal. A single process looks after every iteration.

    Raises:
        ValueError: if `signals` names an unknown signal, if `interval` is less than 1, or, when the training starts,
            if `default_hooks.checkpoint` is not `vitplug.CheckpointHook`.
    """

    # After the hooks that finish an iteration or a validation, so that its checkpoint holds their results.
    priority = 'LOWEST'

    def __init__(self, signals: Sequence[str] = SIGNALS, interval: int = 10):
        unknown = [name for name in signals if name not in signal.Signals.__members__]
        if unknown:
            raise ValueError(f'signals = {signals!r}: unknown are {unknown}, allowed are names such as SIGTERM')
        if interval < 1:
            raise ValueError(f'interval = {interval!r}: must be at least 1')
        self.signals = [signal.Signals[name] for name in signals]
        self.interval = interval
        self.received: signal.Signals | None = None
        self.handlers = {}

    def before_train(self, runner) -> None:
        """Starts to listen, and runs a validation that is due."""
        self.checkpoint_hook = _checkpoint_hook(runner)
        for loop in (runner.train_loop, runner.val_loop):
            if loop is not None:
                _shield_workers(loop.dataloader, self.signals)
        # Python delivers signals to the main thread only.
        if threading.current_thread() is threading.main_thread():
            self.handlers = {number: signal.signal(number, self._note) for number in self.signals if _is_free(number)}
        if validation_is_due(runner):
            runner.logger.info(f'Validating iteration {runner.iter}, which the resumed training had not finished')
            runner.val_loop.run()

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Saves and stops if a signal came."""
        if dist.get_world_size() == 1 or self.every_n_train_iters(runner, self.interval):
            self._stop_if_asked(runner, epoch=runner.epoch, iter=runner.iter + 1)

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Saves the state from before the validation and stops if a signal came."""
        if self.received is None or not self.handlers or dist.get_world_size() > 1:
            return
        for hook in runner.hooks:
            if isinstance(hook, EMAHook):
                hook._swap_ema_parameters()
        self._stop_if_asked(runner, epoch=runner.epoch, iter=runner.iter)

    def after_val_epoch(self, runner, metrics=None) -> None:
        """Saves the validated state and stops if a signal came."""
        if self.handlers:
            self._stop_if_asked(runner, epoch=runner.epoch, iter=runner.iter)

    def after_train(self, runner) -> None:
        """Stops to listen."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}

    def _note(self, number: int, frame) -> None:
        self.received = signal.Signals(number)

    def _stop_if_asked(self, runner, **position: int) -> None:
        if not any_process(self.received is not None):
            return
        if self.checkpoint_hook.saved_iter != position['iter']:
            self.checkpoint_hook.save_interrupted(runner, position)
        for number in self.handlers:
            signal.signal(number, signal.SIG_IGN)  # a second one must not cut off the end of the process
        self.handlers = {}
        name = self.received.name if self.received else 'a signal to another process'
        raise Interrupted(
            f'stopped by {name} after iteration {position["iter"]} and saved: --resume goes on from '
            f'{self.checkpoint_hook.last_ckpt}'
        )


def validation_is_due(runner) -> bool:
    """Whether a resumed training stands where a validation has to follow that was not finished.

    The rule by which mmengine's two training loops validate, asked before the first iteration instead of after one.
    """
    loop = runner.train_loop
    if runner.val_loop is None or runner.iter == 0:
        return False
    if runner.message_hub.runtime_info.get('validated_iter') == runner.iter:
        return False
    if isinstance(loop, IterBasedTrainLoop):
        position, end = loop.iter, loop.max_iters
    elif inside_epoch(runner):
        return False
    else:
        position, end = loop.epoch, loop.max_epochs
    loop._decide_current_val_interval()
    return position >= loop.val_begin and (position % loop.val_interval == 0 or position == end)


def inside_epoch(runner) -> bool:
    """Whether a training by epochs stands between the first and the last iteration of one, on resume."""
    return runner.message_hub.runtime_info.get('epoch_begin', (None,))[0] == runner.epoch


def _checkpoint_hook(runner) -> CheckpointHook:
    for hook in runner.hooks:
        if isinstance(hook, CheckpointHook):
            return hook
    raise ValueError(
        'vitplug.InterruptionHook saves with vitplug.CheckpointHook: '
        "set default_hooks.checkpoint = dict(type='vitplug.CheckpointHook', ...), or default_hooks.interruption = None"
    )


def _is_free(number: signal.Signals) -> bool:
    """Whether nobody else has decided what a signal does."""
    if number == signal.SIGINT and hasattr(sys, 'ps1'):
        return False
    # None: a handler that is not Python's.
    return signal.getsignal(number) not in (signal.SIG_IGN, None)


def _shield_workers(loader, signals: Sequence[signal.Signals]) -> None:
    """Lets a loader's workers outlive signals that a scheduler or terminal sends to all processes of a job."""
    loader.worker_init_fn = partial(_start_worker, loader.worker_init_fn, signals)


def _start_worker(init_fn, signals: Sequence[signal.Signals], worker_id: int) -> None:
    for number in {*signals} - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_heed_parent, daemon=True).start()
    if init_fn is not None:
        init_fn(worker_id)


def _heed_parent() -> None:
    """Ends a worker on the SIGTERM of its own training, which is how loaders end workers that are in their way."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
