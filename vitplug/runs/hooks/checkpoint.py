"""Checkpoints of which a whole one is left by a kill at any moment, and the one to go on from."""

import os
import shutil
import zipfile
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook

from vitplug.files.named import METADATA, is_checkpoint, is_sharded
from vitplug.files.whole import write_bytes
from vitplug.registry import HOOKS

# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'
INTERRUPTED = 'interrupted.pth'
# The last iteration that was validated, in the message hub.
VALIDATED = 'validated'


@register_backend('vitplug.atomic')
class WholeFiles(LocalBackend):
    """mmengine's backend for local files, each of which is written whole or not at all.

    mmengine removes a checkpoint, a file or the folder of a sharded one, before it writes the next: here it goes at
    :meth:`flush`, unless the next one has taken its name.
    """

    def __init__(self):
        self.waiting: dict[Path, int] = {}

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file."""
        path = Path(filepath)
        before = make_way(path) if path.is_dir() else None
        write_bytes(path, obj)
        if before:
            discard(before)

    def remove(self, filepath: str | Path) -> None:
        """Notes what is to go, a path with its inode."""
        self.waiting[Path(filepath)] = os.stat(filepath).st_ino

    rmtree = remove

    def flush(self, folder: Path) -> None:
        """Removes what is noted. What lies elsewhere stays: it may be the best checkpoint of another training."""
        for path, inode in self.waiting.items():
            if path.parent == folder and path.exists() and path.stat().st_ino == inode:
                discard(path)
        self.waiting.clear()


def discard(path: Path) -> None:
    """Removes a checkpoint if it is there; cut short, it leaves a folder of shards that counts as none."""
    if path.is_dir():
        (path / METADATA).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_way(path: Path) -> Path:
    """The name that a checkpoint gets before another one takes its own: one of them is found whenever a kill comes."""
    before = path.with_name(f'{path.stem}_before.pth')
    if path.exists():
        discard(before)
        path.rename(before)
    return before


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
            discard(Path(runner.work_dir, INTERRUPTED))

    def _save_best_checkpoint(self, runner, metrics) -> None:
        runner.message_hub.update_info(VALIDATED, runner.iter)
        super()._save_best_checkpoint(runner, metrics)
        self._flush()

    def _flush(self) -> None:
        if isinstance(self.file_backend, WholeFiles):
            self.file_backend.flush(Path(self.out_dir))


# --- the checkpoint to go on from ---


def last_checkpoint(work_dir: str | Path) -> Path | None:
    """The checkpoint that a work dir notes as the last one, else the newest whole one in it; None if it holds none.

    The note holds a whole path; after the folder was moved, the file of its name beside the note counts. A training
    that was killed before it could write the note has left a checkpoint.

    Raises:
        ValueError: If none of its checkpoints is whole.
    """
    note = Path(work_dir, 'last_checkpoint')
    noted = Path(note.read_text(errors='replace').strip() if note.is_file() else '')
    if found := next(filter(is_checkpoint, (noted, Path(work_dir, noted.name))), None):
        return found
    # The best ones lack the optimizer. A folder without its metadata is one that was being removed.
    left = [path for path in Path(work_dir).glob('*.pth') if not path.name.startswith('best_') and is_checkpoint(path)]
    whole = [path for path in left if is_sharded(path) or zipfile.is_zipfile(path)]
    if left and not whole:
        raise ValueError(f'{work_dir}: none of its checkpoints is whole, such as {left[0]}: remove them to start anew')
    return max(whole, key=os.path.getmtime, default=None)


def choose_start(cfg) -> None:
    """Names the checkpoint that a training goes on from, and checks that it overwrites no other training.

    Args:
        cfg: The config; `resume` and `load_from` are changed in place.

    Raises:
        FileExistsError: If the work dir holds checkpoints of a training that is not the one to go on with.
        ValueError: If it is to go on with one of them, and none is whole.
    """
    if cfg.get('resume') == AUTO or (cfg.get('resume') and not cfg.get('load_from')):
        last = last_checkpoint(cfg.work_dir)
        cfg.resume = last is not None
        cfg.load_from = str(last) if last else cfg.get('load_from')
        return
    # With CheckpointHook.out_dir the last one lies elsewhere.
    held = [*Path(cfg.work_dir).glob('*.pth')] or [*filter(None, [last_checkpoint(cfg.work_dir)])]
    goes_on = cfg.get('resume') and Path(cfg.load_from).resolve().parent in {path.resolve().parent for path in held}
    if held and not goes_on:
        raise FileExistsError(
            f'{cfg.work_dir} already holds checkpoints of an earlier training: continue it with --resume, or choose '
            'another --work-dir'
        )
