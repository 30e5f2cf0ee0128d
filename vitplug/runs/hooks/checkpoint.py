"""Checkpoints of which a whole one is left by a kill at any moment."""

import inspect
import os

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook
from mmengine.hooks import EarlyStoppingHook

from vitplug.files.atomic import remove_folder, remove_partial_files
from vitplug.files.named import is_sharded
from vitplug.registry import HOOKS
from vitplug.spelling import hint

INTERRUPTED = 'interrupted.pth'
EARLY_STOPPING = 'early_stopping'


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment.

    - A checkpoint is written beside its place and renamed once it is whole.
    - Earlier ones are removed after it, and in the folder of this training alone.
    - It holds the count of early stopping, which goes on with `--resume`.
    - :meth:`save_interrupted` saves between the regular ones; the next regular one replaces that file.

    Args:
        *args, **kwargs: As mmengine's `CheckpointHook`. With `backend_args`, `file_client_args` or an `out_dir` that
            is an address, the writing is left to the backend they choose.

    Raises:
        ValueError: If there is no such argument.
    """

    def __init__(self, *args, **kwargs):
        if not (kwargs.get('backend_args') or kwargs.get('file_client_args') or '://' in str(kwargs.get('out_dir'))):
            kwargs['backend_args'] = dict(backend='vitplug.atomic')
        super().__init__(*args, **kwargs)
        if self.args:  # mmengine hands them on to `save_checkpoint`, which takes none of them
            known = list(inspect.signature(MMEngineCheckpointHook.__init__).parameters)[1:-1]
            unknown = next(iter(self.args))
            raise ValueError(
                f'CheckpointHook has no argument {unknown!r}{hint(unknown, known)}; it takes {", ".join(known)}'
            )
        self.saved_iter: int | None = None

    def before_train(self, runner) -> None:
        """Chooses the folder."""
        super().before_train(runner)
        if runner._resume:  # mmengine forgets it, and would keep no record of a best checkpoint until the next one
            self.last_ckpt = str(runner._load_from)
        self.file_backend = RemovesLater(self.file_backend, self.out_dir)
        if is_main_process():
            remove_partial_files(self.out_dir)  # which a killed training had not finished writing

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Adds the count of early stopping."""
        checkpoint[EARLY_STOPPING] = [
            (float(hook.best_score), int(hook.wait_count)) for hook in _early_stopping(runner)
        ]

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Gives early stopping its count back."""
        if runner._resume:
            for hook, state in zip(_early_stopping(runner), checkpoint.get(EARLY_STOPPING, ()), strict=False):
                hook.best_score, hook.wait_count = state

    def save_interrupted(self, runner, meta: dict) -> None:
        """Saves a checkpoint that stands until the next regular one.

        Args:
            runner: The runner of the training.
            meta: Its `epoch` and `iter`, the numbers of finished ones.
        """
        self.last_ckpt = self.file_backend.join_path(self.out_dir, INTERRUPTED)
        runner.save_checkpoint(
            self.out_dir, INTERRUPTED, meta=meta, by_epoch=self.by_epoch, backend_args=self.backend_args
        )
        if is_main_process():
            with open(os.path.join(runner.work_dir, 'last_checkpoint'), 'w') as file:
                file.write(self.last_ckpt)

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        super()._save_checkpoint_with_step(runner, step, meta)
        self.saved_iter = meta['iter']
        if is_main_process():
            self.file_backend.remove(self.file_backend.join_path(self.out_dir, INTERRUPTED))
            self.file_backend.remove_now()

    def _save_best_checkpoint(self, runner, metrics) -> None:
        super()._save_best_checkpoint(runner, metrics)
        if is_main_process():
            self.file_backend.remove_now()


def _early_stopping(runner) -> list[EarlyStoppingHook]:
    return [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]


class RemovesLater:
    """A file backend that removes when it is told so, and in one folder alone.

    mmengine removes earlier checkpoints before it writes a new one. A resumed checkpoint names others of its own
    folder, which may be that of another training.

    Args:
        backend: The backend inside.
        folder: The folder.
    """

    def __init__(self, backend, folder: str):
        self._backend, self._folder = backend, folder
        self._waiting: list[str] = []

    def __getattr__(self, name: str):
        return getattr(self._backend, name)

    def remove(self, path: str) -> None:
        """Notes a checkpoint to be removed."""
        if os.path.dirname(path) == self._folder.rstrip('/'):
            self._waiting.append(path)

    rmtree = remove

    def remove_now(self) -> None:
        """Removes all noted files and sharded checkpoints that are there."""
        while self._waiting:
            path = self._waiting.pop()
            if is_sharded(path):
                remove_folder(path)
            elif self._backend.isfile(path):
                self._backend.remove(path)
