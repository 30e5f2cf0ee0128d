"""Checkpoints of which a whole one is left by a kill at any moment, and the one to go on from."""

import os
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook

from vitplug.files.whole import write_bytes
from vitplug.registry import HOOKS

# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'
INTERRUPTED = 'interrupted.pth'


@register_backend('vitplug.atomic')
class WholeFiles(LocalBackend):
    """mmengine's backend for local files, each of which is written whole or not at all.

    mmengine removes a checkpoint before it writes the next: here it goes at :meth:`flush`.
    """

    def __init__(self):
        self.waiting: list[Path] = []

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file."""
        write_bytes(Path(filepath), obj)

    def remove(self, filepath: str | Path) -> None:
        """Notes what is to go."""
        self.waiting.append(Path(filepath))

    def flush(self, folder: Path) -> None:
        """Removes what is noted. What lies elsewhere stays: it may be the best checkpoint of another training."""
        for path in self.waiting:
            if path.parent == folder:
                path.unlink(missing_ok=True)
        self.waiting.clear()


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment.

    A checkpoint is written beside its place and renamed once it is whole, and only then are others removed: those that
    are too many, the best one of before, and that of an interruption.

    Args:
        *args, **kwargs: As mmengine's `CheckpointHook`. With `backend_args`, `file_client_args` or an `out_dir` that
            is an address, writing and removing are left to the backend they choose.

    Raises:
        TypeError: If there is no such argument.
    """

    def __init__(self, *args, **kwargs):
        if not (kwargs.get('backend_args') or kwargs.get('file_client_args') or '://' in str(kwargs.get('out_dir'))):
            kwargs['backend_args'] = dict(backend='vitplug.atomic')
        super().__init__(*args, **kwargs)
        if self.args:  # mmengine hands them on to `save_checkpoint`, after an epoch, which takes none of them
            raise TypeError(f'CheckpointHook.__init__() got an unexpected keyword argument {next(iter(self.args))!r}')

    def before_train(self, runner) -> None:
        """Chooses the folder."""
        super().before_train(runner)
        if runner._resume:  # mmengine forgets it, and would keep no record of a best checkpoint until the next one
            self.last_ckpt = str(runner._load_from)

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        super()._save_checkpoint_with_step(runner, step, meta)
        self._flush()
        if is_main_process():
            Path(runner.work_dir, INTERRUPTED).unlink(missing_ok=True)

    def _save_best_checkpoint(self, runner, metrics) -> None:
        super()._save_best_checkpoint(runner, metrics)
        self._flush()

    def _flush(self) -> None:
        if isinstance(self.file_backend, WholeFiles):
            self.file_backend.flush(Path(self.out_dir))


# --- the checkpoint to go on from ---


def last_checkpoint(work_dir: str | Path) -> Path | None:
    """The checkpoint that a work dir notes as the last one, else the newest in it; None if it holds none.

    The note holds a whole path; after the folder was moved, the file of its name beside the note counts. A training
    that was killed before it could write the note has left a checkpoint.
    """
    note = Path(work_dir, 'last_checkpoint')
    noted = Path(note.read_text(errors='replace').strip() if note.is_file() else '')
    if found := next(filter(Path.is_file, (noted, Path(work_dir, noted.name))), None):
        return found
    # The best ones lack the optimizer.
    left = [path for path in Path(work_dir).glob('*.pth') if not path.name.startswith('best_')]
    return max(left, key=os.path.getmtime, default=None)


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
