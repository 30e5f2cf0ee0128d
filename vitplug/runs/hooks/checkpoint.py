"""Checkpoints of which a whole one is left by a kill at any moment, and the one to go on from."""

import inspect
import os
import shutil
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook
from mmengine.hooks import EarlyStoppingHook

from vitplug.files.named import METADATA, is_checkpoint
from vitplug.files.whole import PARTIAL, write_bytes
from vitplug.registry import HOOKS
from vitplug.spelling import hint

# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'
INTERRUPTED = 'interrupted_{}.pth'
EARLY_STOPPING = 'early_stopping'


@register_backend('vitplug.atomic')
class WholeFiles(LocalBackend):
    """mmengine's backend for local files, each of which is written whole or not at all, and removed later.

    mmengine removes earlier checkpoints before it writes a new one. A resumed checkpoint names others of its own
    folder, which may be that of another training.

    Attributes:
        folder: Where checkpoints may be removed.
    """

    folder = ''

    def __init__(self):
        self._waiting: list[str] = []

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file."""
        write_bytes(Path(filepath), obj)

    def remove(self, filepath: str | Path) -> None:
        """Notes a checkpoint to be removed."""
        self._waiting.append(str(filepath))

    rmtree = remove

    def remove_now(self) -> None:
        """Removes all noted checkpoints that are there."""
        while self._waiting:
            path = Path(self._waiting.pop())
            if path.is_dir() and path.parent == Path(self.folder):
                remove_shards(path)
            elif path.parent == Path(self.folder):
                path.unlink(missing_ok=True)


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment.

    - A checkpoint is written beside its place and renamed once it is whole.
    - Earlier ones are removed after it, and in the folder of this training alone.
    - It holds the count of early stopping, which goes on with `--resume`.
    - :meth:`save_interrupted` saves between the regular ones; the next one replaces that file.

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
            raise ValueError(f'CheckpointHook has no argument {unknown!r}{hint(unknown, known)}; it takes {known}')
        self.saved_iter: int | None = None

    def before_train(self, runner) -> None:
        """Chooses the folder, and removes what a killed training had not finished writing."""
        super().before_train(runner)
        if runner._resume:  # mmengine forgets it, and would keep no record of a best checkpoint until the next one
            self.last_ckpt = str(runner._load_from)
        self.file_backend.folder = self.out_dir
        if is_main_process():
            for path in Path(self.out_dir).glob(PARTIAL.format('*.pth')):
                path.unlink()

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
        """Saves a checkpoint that stands until the next one.

        Args:
            runner: The runner of the training.
            meta: Its `epoch` and `iter`, the numbers of finished ones.
        """
        name = INTERRUPTED.format(meta['iter'])
        self.last_ckpt = self.file_backend.join_path(self.out_dir, name)
        runner.save_checkpoint(self.out_dir, name, meta=meta, by_epoch=self.by_epoch, backend_args=self.backend_args)
        if is_main_process():
            Path(runner.work_dir, 'last_checkpoint').write_text(self.last_ckpt)
        self._remove_others()

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        super()._save_checkpoint_with_step(runner, step, meta)
        self.saved_iter = meta['iter']
        self._remove_others()

    def _save_best_checkpoint(self, runner, metrics) -> None:
        super()._save_best_checkpoint(runner, metrics)
        self._remove_others()

    def _remove_others(self) -> None:
        """Removes earlier checkpoints, now that a new one is there."""
        if is_main_process() and isinstance(self.file_backend, WholeFiles):
            for path in Path(self.out_dir).glob(INTERRUPTED.format('*')):
                if str(path) != self.last_ckpt:
                    self.file_backend.remove(path)
            self.file_backend.remove_now()


def _early_stopping(runner) -> list[EarlyStoppingHook]:
    return [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]


def remove_shards(folder: Path) -> None:
    """Removes a sharded checkpoint; cut short, it leaves a folder that counts as none."""
    (folder / METADATA).unlink(missing_ok=True)
    shutil.rmtree(folder)


# --- the checkpoint to go on from ---


def last_checkpoint(work_dir: str | Path) -> Path | None:
    """The checkpoint that a work dir notes as the last one, else the newest in it; None if there is none.

    The note holds a whole path; after the folder was moved, the file of its name beside the note counts. A training
    that was killed before it could write the note has left a whole checkpoint.
    """
    note = Path(work_dir, 'last_checkpoint')
    if note.is_file():
        noted = Path(note.read_text(errors='replace').strip())
        for path in (noted, Path(work_dir, noted.name)):
            if is_checkpoint(path):
                return path
    written = [path for path in Path(work_dir).glob('*.pth') if not path.name.startswith('best_')]
    return max(filter(is_checkpoint, written), key=os.path.getmtime, default=None)


def choose_start(cfg) -> None:
    """Names the checkpoint that a training goes on from, and checks that it overwrites no other training.

    Args:
        cfg: The config; `resume` and `load_from` are changed in place.

    Raises:
        FileExistsError: If the work dir holds checkpoints of a training that is not the one to go on with.
    """
    if cfg.get('resume') == AUTO or (cfg.get('resume') and not cfg.get('load_from')):
        last = last_checkpoint(cfg.work_dir)
        cfg.resume = last is not None
        cfg.load_from = str(last) if last else cfg.get('load_from')
        return
    goes_on = cfg.get('resume') and Path(cfg.load_from).resolve().parent == Path(cfg.work_dir).resolve()
    if not goes_on and any(Path(cfg.work_dir).glob('*.pth')):
        raise FileExistsError(
            f'{cfg.work_dir} already holds checkpoints of an earlier training: continue it with --resume, or choose '
            'another --work-dir'
        )
