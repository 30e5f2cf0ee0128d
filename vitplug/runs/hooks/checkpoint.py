"""Checkpoints of which a whole one is left by a kill at any moment, and the one to go on from."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook

from vitplug.files.named import METADATA, is_checkpoint
from vitplug.files.whole import write_bytes
from vitplug.registry import HOOKS

# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'
INTERRUPTED = 'interrupted.pth'


@register_backend('vitplug.atomic')
class WholeFiles(LocalBackend):
    """mmengine's backend for local files, each of which is written whole or not at all.

    Attributes:
        folder: Where checkpoints may be removed. One of another folder may be the best one of another training.
    """

    folder = ''

    def __init__(self) -> None:
        self.waiting: list[Path] | None = None

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file."""
        write_bytes(Path(filepath), obj)

    def remove(self, filepath: str | Path) -> None:
        """Removes a checkpoint, a file or the folder of a sharded one, of this training."""
        path = Path(filepath)
        if path.parent != Path(self.folder):
            return
        if self.waiting is not None:
            self.waiting.append(path)
            return
        if path.is_dir():
            remove_shards(path)
        else:
            path.unlink(missing_ok=True)

    rmtree = remove

    @contextmanager
    def removing_last(self) -> Iterator[None]:
        """Removes what is to go inside a ``with`` block at its end, when what takes its place is there."""
        self.waiting = []
        try:
            yield
        finally:
            paths, self.waiting = self.waiting, None
        for path in paths:
            self.remove(path)


@HOOKS.register_module()
class CheckpointHook(MMEngineCheckpointHook):
    """mmengine's hook, made safe against a kill at any moment.

    A checkpoint is written beside its place and renamed once it is whole. Two are kept at least until the training
    ends, for mmengine removes one before it writes the next. :meth:`save_interrupted` saves between the regular ones;
    the next one replaces that file.

    Args:
        *args, **kwargs: As mmengine's `CheckpointHook`. With `backend_args`, `file_client_args` or an `out_dir` that
            is an address, the writing is left to the backend they choose.

    Raises:
        TypeError: If there is no such argument.
    """

    def __init__(self, *args, **kwargs):
        if not (kwargs.get('backend_args') or kwargs.get('file_client_args') or '://' in str(kwargs.get('out_dir'))):
            kwargs['backend_args'] = dict(backend='vitplug.atomic')
        super().__init__(*args, **kwargs)
        if self.args:  # mmengine hands them on to `save_checkpoint`, after an epoch, which takes none of them
            raise TypeError(f'CheckpointHook.__init__() got an unexpected keyword argument {next(iter(self.args))!r}')
        self.keeps_one = self.max_keep_ckpts == 1
        self.max_keep_ckpts = 2 if self.keeps_one else self.max_keep_ckpts

    def before_train(self, runner) -> None:
        """Chooses the folder."""
        super().before_train(runner)
        if runner._resume:  # mmengine forgets it, and would keep no record of a best checkpoint until the next one
            self.last_ckpt = str(runner._load_from)
        self.file_backend.folder = self.out_dir

    def after_train(self, runner) -> None:
        """Leaves one checkpoint where one is asked for."""
        super().after_train(runner)
        if self.keeps_one:
            for step in list(self.keep_ckpt_ids)[:-1]:
                self._remove(self.filename_tmpl.format(step))

    def save_interrupted(self, runner, meta: dict) -> None:
        """Saves a checkpoint that stands until the next one.

        Args:
            runner: The runner of the training.
            meta: Its `epoch` and `iter`, the numbers of finished ones.
        """
        self.last_ckpt = self.file_backend.join_path(self.out_dir, INTERRUPTED)
        settings = dict(meta=meta, by_epoch=self.by_epoch, backend_args=self.backend_args)
        runner.save_checkpoint(self.out_dir, INTERRUPTED, **settings)
        if is_main_process():
            Path(runner.work_dir, 'last_checkpoint').write_text(self.last_ckpt)

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        super()._save_checkpoint_with_step(runner, step, meta)
        self._remove(INTERRUPTED)

    def _save_best_checkpoint(self, runner, metrics) -> None:
        atomic = isinstance(self.file_backend, WholeFiles)
        with self.file_backend.removing_last() if atomic else nullcontext():
            super()._save_best_checkpoint(runner, metrics)

    def _remove(self, name: str) -> None:
        path = self.file_backend.join_path(self.out_dir, name)
        if is_main_process() and self.file_backend.exists(path):
            self.file_backend.remove(path)


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
