"""The checkpoints in a work dir, from which a training can go on."""

import os
from pathlib import Path

from vitplug.files.atomic import bring_back
from vitplug.files.named import is_checkpoint

# Value of a config's `resume`: go on from the last checkpoint of the work dir; without one, start as the config says.
AUTO = 'auto'


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
        FileNotFoundError: If it notes a checkpoint that is gone, and has no other.
    """
    bring_back(cfg.work_dir)
    if cfg.get('resume') == AUTO or (cfg.get('resume') and not cfg.get('load_from')):
        last, note = last_checkpoint(cfg.work_dir), Path(cfg.work_dir, 'last_checkpoint')
        if last is None and note.is_file():
            named = note.read_text(errors='replace').strip()[:200]
            raise FileNotFoundError(
                f'{note} names a missing file, {named}: name one with --resume PATH, or choose another --work-dir'
            )
        cfg.resume = last is not None
        cfg.load_from = str(last) if last else cfg.get('load_from')
    elif not cfg.get('resume') or Path(cfg.load_from).resolve().parent != Path(cfg.work_dir).resolve():
        check_unused(cfg.work_dir)


def check_unused(folder: str | Path) -> None:
    """Checks that a training overwrites no earlier one.

    Raises:
        FileExistsError: If the folder holds checkpoints.
    """
    if os.path.lexists(Path(folder, 'last_checkpoint')) or any(Path(folder).glob('*.pth')):
        raise FileExistsError(
            f'{folder} already holds checkpoints of an earlier training: '
            'continue it with --resume, or choose another --work-dir'
        )
