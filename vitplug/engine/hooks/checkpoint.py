"""Checkpoints of which the last complete one is never lost."""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook

from vitplug.registry import HOOKS

from ..atomic_files import AtomicBackend, remove_partial_files
from ..checkpoint_fit import CheckpointFitHook, check_checkpoint
from ..stops import CheckpointNotWritten

INTERRUPTED = 'interrupted.pth'


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment and a full disk.

    - A checkpoint and `last_checkpoint` are written beside their place and renamed once complete.
    - `last_checkpoint` is written after its checkpoint, and old checkpoints are removed last of all.
    - Gradients that wait for more in gradient accumulation are saved as well (of one process).
    - A checkpoint that does not fit the model is refused, where mmengine would leave weights at random.
    - `save_interrupted` saves between the regular checkpoints; the next regular one replaces that file.

    Args:
        *args, **kwargs: As mmengine's `CheckpointHook`. With `backend_args`, `file_client_args` or an `out_dir` that
            is an address, the writing is left to the backend they choose.

    Raises:
        CheckpointNotWritten: if a checkpoint cannot be written; names the last good one.
        CheckpointNotRead: if the one to be loaded does not fit the model or the training.
    """

    def __init__(self, *args, **kwargs):
        chosen = kwargs.get('backend_args') or kwargs.get('file_client_args')
        if not chosen and '://' not in str(kwargs.get('out_dir')):
            kwargs['backend_args'] = dict(backend='vitplug.atomic')
        super().__init__(*args, **kwargs)
        self.saved_iter = None
        self.gradients: dict[str, torch.Tensor] = {}

    def before_train(self, runner) -> None:
        """Takes up where a killed training stopped: with the records of its checkpoints, less its broken files."""
        super().before_train(runner)
        self.file_backend = RemovesLater(self.file_backend)
        # mmengine forgets it, and then keeps no record of a best checkpoint until the next regular one.
        self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
        if is_main_process():
            for path in remove_partial_files(self.out_dir):
                runner.logger.info(f'Removed {path}, which a killed training had not finished writing')

        for name, parameter in runner.model.named_parameters():
            if name in self.gradients:
                parameter.grad = self.gradients[name].to(parameter)
        self.gradients = {}

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Adds what gradient accumulation has summed up so far; there is none right after an optimizer's step."""
        if 'optimizer' in checkpoint:
            parameters = runner.model.named_parameters()
            checkpoint['gradients'] = {name: p.grad.cpu() for name, p in parameters if p.grad is not None}

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Refuses a checkpoint of another model, and takes the summed gradients of a training that is resumed."""
        if not any(isinstance(hook, CheckpointFitHook) for hook in runner.hooks):
            check_checkpoint(runner, checkpoint)
        if runner._resume:
            self.gradients = checkpoint.get('gradients', {})

    def after_val_epoch(self, runner, metrics) -> None:
        """Notes that the state was validated, then keeps it if it is the best."""
        runner.message_hub.update_info('validated_iter', runner.iter)
        super().after_val_epoch(runner, metrics)

    def save_interrupted(self, runner, meta: dict) -> None:
        """Saves a checkpoint that stands until the next regular one.

        Args:
            runner: The runner of the training.
            meta: Its `epoch` and `iter`, the numbers of finished ones.
        """
        self._write(runner, INTERRUPTED, meta)

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        expired = []
        if self.max_keep_ckpts > 0 and step not in self.keep_ckpt_ids:
            kept = [*self.keep_ckpt_ids, step]
            expired = kept[: -self.max_keep_ckpts]
            self.keep_ckpt_ids = deque(kept[-self.max_keep_ckpts :], self.max_keep_ckpts)
            # The checkpoint still counts those that are removed after it: a training killed in between removes them
            # when it resumes.
            runner.message_hub.update_info('keep_ckpt_ids', kept)
        for name in [*map(self.filename_tmpl.format, expired), INTERRUPTED]:
            self._remove_later(name)
        self._write(runner, self.filename_tmpl.format(step), meta)
        if expired:
            runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))

    def _save_best_checkpoint(self, runner, metrics) -> None:
        with self._explained():
            super()._save_best_checkpoint(runner, metrics)
            self.file_backend.remove_now()

    def _remove_later(self, filename: str) -> None:
        path = self.file_backend.join_path(self.out_dir, filename)
        if is_main_process() and self.file_backend.isfile(path):
            self.file_backend.remove(path)
        elif is_main_process() and self.file_backend.isdir(path):
            self.file_backend.rmtree(path)  # a sharded checkpoint

    def _write(self, runner, filename: str, meta: dict) -> None:
        path = self.file_backend.join_path(self.out_dir, filename)
        runner.message_hub.update_info('last_ckpt', path)
        with self._explained():
            runner.save_checkpoint(
                self.out_dir,
                filename,
                self.file_client_args,
                save_optimizer=self.save_optimizer,
                save_param_scheduler=self.save_param_scheduler,
                meta=meta,
                by_epoch=self.by_epoch,
                backend_args=self.backend_args,
                **self.args,
            )
            if is_main_process():
                AtomicBackend().put_text(path, os.path.join(runner.work_dir, 'last_checkpoint'))
                self.file_backend.remove_now()
        self.last_ckpt = path
        self.saved_iter = meta['iter']

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            good = f'the last good one is {self.last_ckpt}' if self.last_ckpt else 'this run has written none yet'
            raise CheckpointNotWritten(
                f'cannot write a checkpoint into {self.out_dir}: {error.strerror or error} ({_free(self.out_dir)}); '
                f'{good}: make room or make the folder writable, then go on with --resume'
            ) from error


class RemovesLater:
    """A file backend whose removals wait until what replaces the files is complete."""

    def __init__(self, backend):
        self._backend = backend
        self._waiting: list[tuple[Callable[[str], None], str]] = []

    def __getattr__(self, name: str):
        return getattr(self._backend, name)

    def remove(self, path: str) -> None:
        """Notes a file to be removed."""
        self._waiting.append((self._backend.remove, path))

    def rmtree(self, path: str) -> None:
        """Notes a folder to be removed."""
        self._waiting.append((self._backend.rmtree, path))

    def remove_now(self) -> None:
        """Removes all that was noted."""
        while self._waiting:
            remove, path = self._waiting.pop()
            remove(path)


def _free(folder: str) -> str:
    try:
        return f'{shutil.disk_usage(folder).free / 2**20:.0f} MiB are free there'
    except OSError as error:
        return error.strerror
