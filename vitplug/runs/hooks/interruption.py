"""Ends a training on a signal without losing anything, and runs on resume the validation that an end cut off."""

import os
import signal
import threading
from functools import partial
from pathlib import Path

import torch
from mmengine import dist
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.errors import TrainingStopped
from vitplug.files.whole import write_text
from vitplug.registry import HOOKS

from .checkpoint import INTERRUPTED, VALIDATED
from .randomness import RandomnessHook, is_inside_epoch

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@HOOKS.register_module()
class InterruptionHook(Hook):
    """On SIGTERM or Ctrl-C saves at the end of the iteration and stops; on resume validates where a validation is due.

    The checkpoint goes to `interrupted.pth`, which stands until `vitplug.CheckpointHook` writes the next one. A
    validation is finished first, and so is the step of accumulated gradients. A second signal changes nothing; SIGQUIT
    (Ctrl-\\) and SIGKILL end the process at once.

    mmengine writes a checkpoint before it validates the same state, so a training killed in between would never report
    that validation: this hook runs it first.

    Args:
        interval: In how many iterations the processes of a distributed training ask each other whether one of them
            got a signal. A single process looks after every iteration.

    Raises:
        TrainingStopped: When it has saved.
        ValueError: Without `vitplug.RandomnessHook` in a training by epochs, which knows how far an epoch is.
    """

    # After the hooks that finish an iteration or a validation, so that its checkpoint holds their results.
    priority = 'LOWEST'

    def __init__(self, interval: int = 10):
        self.interval, self.accumulated = interval, 1
        self.received: signal.Signals | None = None
        self.handlers: dict = {}
        # Workers of loaders see it, too.
        self.is_ending = torch.zeros(1, dtype=torch.bool).share_memory_()

    def before_train(self, runner) -> None:
        """Starts to listen, and runs a validation that is due."""
        by_iterations = isinstance(runner.train_loop, IterBasedTrainLoop)
        if not by_iterations and not any(isinstance(hook, RandomnessHook) for hook in runner.hooks):
            raise ValueError(
                'default_hooks.interruption needs default_hooks.randomness, which goes on inside an epoch: set both '
                'to None, or neither'
            )
        self.accumulated = getattr(runner.optim_wrapper, '_accumulative_counts', 1)
        for loop in filter(None, (runner.train_loop, runner.val_loop)):
            loop.dataloader.worker_init_fn = partial(_start_worker, loop.dataloader.worker_init_fn, self.is_ending)
        if threading.current_thread() is threading.main_thread():  # to which Python delivers signals
            self.handlers = {number: signal.signal(number, self._note) for number in SIGNALS}
        if validation_is_due(runner):
            runner.logger.info(f'Validating iteration {runner.iter}, where the training was cut off')
            runner.val_loop.run()

    def _note(self, number: int, frame) -> None:
        self.received = signal.Signals(number)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Saves and stops if a signal came."""
        steps = 1 if dist.get_world_size() == 1 else max(1, self.interval // self.accumulated)
        if (runner.iter + 1) % (self.accumulated * steps) == 0:
            self._stop_if_asked(runner, runner.iter + 1)

    def after_val_epoch(self, runner, metrics=None) -> None:
        """Saves the validated state and stops if a signal came, but not within a step of accumulated gradients."""
        if runner.iter % self.accumulated == 0:
            self._stop_if_asked(runner, runner.iter)

    def after_train(self, runner) -> None:
        """Stops to listen."""
        self.is_ending.fill_(True)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def _stop_if_asked(self, runner, iteration: int) -> None:
        if _any_process(self.received is not None):
            meta, backend = dict(epoch=runner.epoch, iter=iteration), dict(backend='vitplug.atomic')
            runner.save_checkpoint(runner.work_dir, INTERRUPTED, meta=meta, backend_args=backend)
            saved = Path(runner.work_dir, INTERRUPTED)
            if dist.is_main_process():
                write_text(Path(runner.work_dir, 'last_checkpoint'), str(saved))
            self.after_train(runner)
            name = self.received.name if self.received else 'a signal to another process'
            raise TrainingStopped(f'stopped by {name} and saved: --resume goes on from {saved}')


def _any_process(flag: bool) -> bool:
    """Whether any process has the flag. Every process has to ask, at the same place."""
    if dist.get_world_size() == 1:
        return flag
    together = torch.tensor(int(flag), device=dist.get_comm_device())
    dist.all_reduce(together, op='max')
    return bool(together)


def validation_is_due(runner) -> bool:
    """Whether a resumed training stands where mmengine's training loops validate."""
    loop = runner.train_loop
    by_iterations = isinstance(loop, IterBasedTrainLoop)
    if runner.val_loop is None or runner.iter == 0 or (not by_iterations and is_inside_epoch(runner)):
        return False
    if runner.message_hub.runtime_info.get(VALIDATED) == runner.iter:
        return False
    position, end = (loop.iter, loop.max_iters) if by_iterations else (loop.epoch, loop.max_epochs)
    loop._decide_current_val_interval()
    return position >= loop.val_begin and (position % loop.val_interval == 0 or position == end)


def _start_worker(init_fn, is_ending: torch.Tensor, worker_id: int) -> None:
    """Lets a worker of a loader outlive signals that a scheduler or a terminal sends to all processes of a job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_heed_parent, args=(is_ending,), daemon=True).start()
    if init_fn is not None:
        init_fn(worker_id)


def _heed_parent(is_ending: torch.Tensor) -> None:
    """Ends a worker on the SIGTERM of its own training, which is how loaders end workers.

    Two signals of one kind are one while they wait, under the name of the first sender: when the training ends,
    anyone's counts, or a scheduler's would hide it.
    """
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid() and not is_ending:
        pass
    os._exit(0)
