"""The folders that a training writes into, and the checkpoints in them from which it can go on."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vitplug.checkpoints.safe_loading import load_safely
from vitplug.errors.stops import CheckpointNotRead
from vitplug.files.atomic import bring_back
from vitplug.files.named import is_checkpoint

from .checkpoint_checks import NEEDED_TO_RESUME

# Names the first checkpoint of a training from before it is written until `last_checkpoint` names it.
ANNOUNCED = '.first_checkpoint'
# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'


def checkpoint_folder(out_dir: str | None, work_dir: str) -> str:
    """Where mmengine puts checkpoints: into the work dir, or into a folder of its name in `out_dir`."""
    work_dir = os.path.abspath(work_dir)
    return work_dir if out_dir in (None, work_dir) else os.path.join(out_dir, os.path.basename(work_dir))


def run_folders(cfg) -> list[Path]:
    """The local folders that a training writes checkpoints and records into."""
    hook = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    folders = (cfg.work_dir, checkpoint_folder(hook.get('out_dir'), cfg.work_dir))
    return list(dict.fromkeys(Path(folder).resolve() for folder in folders if '://' not in folder))


def choose_start(runner) -> None:
    """Decides whether a training of :data:`AUTO` goes on or starts, when all of its processes have met.

    Each alone would decide too early: an earlier training may still be writing its last checkpoint.
    """
    if runner._resume == AUTO:
        runner._resume = last_checkpoint(runner.work_dir) is not None
        if runner._resume:
            runner._load_from = str(last_checkpoint(runner.work_dir))


def has_begun(cfg) -> bool:
    """Whether a training of :data:`AUTO` has a checkpoint to go on from, as far as can be told now."""
    return cfg.get('resume') == AUTO and last_checkpoint(cfg.work_dir) is not None


def resumed_checkpoint(cfg) -> str | None:
    """The checkpoint that a config names to go on from; None for the last one of the work dir, or a new training."""
    return cfg.get('load_from') if cfg.get('resume') not in (AUTO, False, None) else None


def check_run_folders(cfg) -> None:
    """Checks that a training overwrites no other one, and that `--resume` finds a checkpoint.

    Completes `load_from` where a training was killed between its first checkpoint and the note of it.

    Raises:
        FileExistsError: if a folder holds checkpoints of a training that is not the one to go on with.
        FileNotFoundError: if `last_checkpoint`, or the file that it names, is missing.
    """
    folders, source = run_folders(cfg), resumed_checkpoint(cfg)
    for folder in folders:
        bring_back(folder)
    if cfg.get('resume') and source is None:
        announced = announced_checkpoint(cfg.work_dir, folders)
        if announced is None:
            check_last_checkpoint(cfg.work_dir, folders)
        else:
            cfg.resume, cfg.load_from = True, announced
    elif not cfg.get('resume') or Path(source).resolve().parent not in folders:
        for folder in folders:
            check_unused(folder)


def check_unused(folder: str | Path) -> None:
    """Checks that a training overwrites no earlier one.

    Raises:
        FileExistsError: if the folder holds checkpoints.
    """
    if os.path.lexists(Path(folder, 'last_checkpoint')) or any(Path(folder).glob('*.pth')):
        raise FileExistsError(
            f'{folder} already holds checkpoints of an earlier training: '
            'continue it with --resume, or choose another --work-dir'
        )


def check_last_checkpoint(work_dir: str, folders: list[Path]) -> None:
    """Checks that the checkpoint noted in a work dir exists, unless the folders hold no checkpoint at all.

    Args:
        work_dir: The work dir.
        folders: Where checkpoints are looked for that could be named instead.

    Raises:
        FileNotFoundError: if it is gone, say because the folder was moved, or if none is noted.
    """
    note = Path(work_dir, 'last_checkpoint')
    noted = last_checkpoint(work_dir)
    if noted is None and (os.path.lexists(note) or any(any(folder.glob('*.pth')) for folder in folders)):
        raise FileNotFoundError(f'{note} is missing or no file: {_advice(folders)}')
    if noted is not None and not is_checkpoint(noted):
        raise FileNotFoundError(f'{note} names a missing file, {noted!s:.200}: {_advice(folders)}')


def announced_checkpoint(work_dir: str, folders: list[Path]) -> str | None:
    """The first checkpoint of a training that was killed before it could note it; None if it is not the only one."""
    announced = Path(work_dir, ANNOUNCED)
    if os.path.lexists(Path(work_dir, 'last_checkpoint')) or not announced.is_file():
        return None
    path = announced.read_text(errors='replace').strip()
    checkpoints = [file.resolve() for folder in folders for file in folder.glob('*.pth')]
    return path if checkpoints == [Path(path).resolve()] else None


def last_checkpoint(work_dir: str | Path) -> Path | None:
    """The checkpoint that a work dir notes as the last one; None if it notes none.

    The note holds a whole path. Where that is gone, as after the folder was moved, the file of its name beside the
    note counts. A note that holds no path names a missing file.
    """
    note = Path(work_dir, 'last_checkpoint')
    if not note.is_file():
        return None
    noted = Path(note.read_text(errors='replace').strip())
    beside = Path(work_dir, noted.name)
    return beside if is_checkpoint(beside) and not os.path.exists(noted) else noted


@contextmanager
def older_checkpoint_named(cfg) -> Iterator[None]:
    """Adds the newest good checkpoint to the error for a broken one."""
    try:
        yield
    except CheckpointNotRead as error:
        source = cfg.get('resume') and (resumed_checkpoint(cfg) or last_checkpoint(cfg.work_dir))
        if not source or '://' in str(source) or _is_good(Path(source)):
            raise
        raise CheckpointNotRead(f'{error}; {_advice(run_folders(cfg))}') from error


def newest_good(folders: list[Path]) -> Path | None:
    """The newest checkpoint in some folders that a training can go on from; each is read until one is good."""
    paths = (
        path for folder in folders for path in folder.glob('*.pth') if is_checkpoint(path) and not path.is_symlink()
    )
    return next(filter(_is_good, sorted(paths, key=os.path.getmtime, reverse=True)), None)


def _is_good(path: Path) -> bool:
    try:
        content = load_safely(str(path))
    except CheckpointNotRead:
        return False
    return isinstance(content, Mapping) and all(isinstance(content.get(key), Mapping) for key in NEEDED_TO_RESUME)


def _advice(folders: list[Path]) -> str:
    good = newest_good(folders)
    if good is None:
        return 'no other checkpoint there can be resumed: name one with --resume PATH, or choose another --work-dir'
    return f'the newest good one is {good}: go on with --resume {good}'
