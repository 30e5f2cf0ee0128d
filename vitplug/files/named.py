"""Configs and checkpoints that a command line names: checked before anything is read."""

import os
from pathlib import Path

from vitplug.spelling import hint

# The file that makes a folder a sharded checkpoint, of the name that torch.distributed.checkpoint gives it.
METADATA = '.metadata'


def check_weights(path: str | None, option: str) -> None:
    """Checks that a checkpoint exists; an address (`https://...`) is left to mmengine.

    Raises:
        FileNotFoundError: names the option, the path and close matches in its folder.
    """
    if path is not None and not is_remote(path) and not is_checkpoint(path):
        raise FileNotFoundError(f'{option}: no such checkpoint: {path}{near_file(path, "*.pth")}')


def check_new_file(path: str | Path, option: str, suffixes: tuple[str, ...]) -> None:
    """Checks the name of a file that is to be written.

    Raises:
        ValueError: if it has another suffix than these.
        FileExistsError: if there is a file, or a link, of this name.
    """
    if not str(path).endswith(suffixes):
        raise ValueError(f'{option}: {path} must end in {" or ".join(suffixes)}')
    if os.path.lexists(path):
        raise FileExistsError(f'{option}: {path} exists and is not overwritten: choose another name')


def is_checkpoint(path: str | Path) -> bool:
    """True for a file, and for a folder that holds a sharded checkpoint."""
    return Path(path).is_file() or is_sharded(path)


def is_sharded(path: str | Path) -> bool:
    """True for a folder that holds a sharded checkpoint."""
    return Path(path, METADATA).is_file()


def is_remote(path: str) -> bool:
    """True for an address such as `https://...`."""
    return '://' in path


def near_file(path: str, pattern: str) -> str:
    """A file of a similar name beside a missing one, for a message."""
    return hint(Path(path).name, [file.name for file in Path(path).parent.glob(pattern)], cutoff=0.75)
