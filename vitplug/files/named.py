"""Files and folders that a command line names: checked before anything is read or written."""

import difflib
import os
from pathlib import Path

SHOWN_MATCHES = 3
# The file that makes a folder a sharded checkpoint, of the name that torch.distributed.checkpoint gives it.
METADATA = '.metadata'


def check_config_file(path: str) -> None:
    """Checks that a config file exists.

    Raises:
        FileNotFoundError: names the path and close matches in its folder.
    """
    if not path:
        raise FileNotFoundError("no such config: the name is '', an empty text; --help shows the command")
    if not Path(path).is_file():
        raise FileNotFoundError(f'no such config: {path}{_close_matches(Path(path), "*.py")}')


def check_weights(path: str | None, option: str) -> None:
    """Checks that a checkpoint exists; an address (`https://...`) is left to mmengine.

    Raises:
        FileNotFoundError: names the option, the path and close matches in its folder.
        ValueError: if it is no regular file but, say, a folder or a pipe.
    """
    if path is None or is_remote(path) or is_checkpoint(path):
        return
    if Path(path).is_dir():
        raise ValueError(f'{option}: {path} is a folder: name a checkpoint{_newest_in(Path(path))}')
    if Path(path).exists():
        raise ValueError(f'{option}: {path} is a pipe or a device: expected a regular file')
    raise FileNotFoundError(f'{option}: no such checkpoint: {path}{_close_matches(Path(path), "*.pth")}')


def is_checkpoint(path: str | Path) -> bool:
    """True for a file, and for a folder that holds a sharded checkpoint."""
    return Path(path).is_file() or is_sharded(path)


def is_sharded(path: str | Path) -> bool:
    """True for a folder that holds a sharded checkpoint."""
    return Path(path, METADATA).is_file()


def _newest_in(folder: Path) -> str:
    """The newest checkpoint of a folder, for a message."""
    files = sorted(folder.glob('*.pth'), key=lambda file: file.stat().st_mtime)
    return f', such as {files[-1]}' if files else '; there is none in this folder'


def check_results_file(path: str | None) -> None:
    """Checks the file that predictions go to.

    Raises:
        ValueError: if the name does not end in .pkl or .pickle.
        FileExistsError: if there is a file, or a link, of this name.
    """
    if path is not None:
        check_new_file(path, '--out', ('.pkl', '.pickle'))


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


def check_pictures_folder(path: str | None, option: str = '--show-dir') -> None:
    """Checks the folder that pictures of predictions go to.

    Raises:
        FileExistsError: if it holds files, which pictures could overwrite.
    """
    if path is not None and os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise FileExistsError(f'{option}: {path} must be a new or an empty folder: choose another one')


def check_writable(work_dir: str) -> None:
    """Checks that a training can write into its folder, or make it.

    Raises:
        PermissionError or NotADirectoryError: names the folder or file that is in the way.
    """
    folder = Path(work_dir).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(f'--work-dir: {existing} is a file, not a folder: choose another --work-dir')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f'--work-dir: cannot write into {existing}: choose another --work-dir')


def check_printable(path: Path, option: str) -> None:
    """Checks that the name of a new file or folder can stand in a line of a config, a script or a message.

    Raises:
        ValueError: names the option and the path.
    """
    if not str(path).isprintable():
        raise ValueError(f'{option}: {str(path)!r} has a line break or another character that cannot be printed')


def is_remote(path: str) -> bool:
    """True for an address such as `https://...`."""
    return '://' in path


def _close_matches(path: Path, pattern: str) -> str:
    if not path.parent.is_dir():
        return f' (there is no folder {path.parent})'
    names = [file.name for file in sorted(path.parent.glob(pattern))]
    close = difflib.get_close_matches(path.name, names, n=SHOWN_MATCHES, cutoff=0.75)
    return f' (did you mean {" or ".join(close)}?)' if close else ''
