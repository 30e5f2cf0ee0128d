"""Files that are written completely or not at all, and never through a link or over another file."""

import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

from .whole import PARTIAL

REPLACED = '.{}.replaced'
# What a sharded checkpoint holds.
OF_SHARDS = re.compile(r'\.metadata(\.tmp)?|rest\.pth|.+\.distcp')


@register_backend('vitplug.atomic')
class AtomicBackend(LocalBackend):
    """mmengine's backend for local files, with writes that a kill or a full disk cannot leave half done.

    A file is written under another name in the same folder, flushed to the disk and renamed; a reader sees the old
    content or the new one. Where the folder was replaced meanwhile, nothing in the new one is.
    """

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file.

        Raises:
            OSError: if they cannot be written; the file keeps its earlier content.
            FileExistsError: if something that is no file has the name of the partial one.
            FileNotFoundError: if the folder was removed or replaced.
        """
        path = Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = identity(path.parent)
        partial = path.with_name(PARTIAL.format(path.name))
        _clear(partial)
        try:
            self.write(partial, obj)
            if identity(path.parent) != folder:
                raise FileNotFoundError(f'{path.parent} was removed or replaced while it was written into')
            put_in_place(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def put_text(self, obj: str, filepath: str | Path, encoding: str = 'utf-8') -> None:
        """Writes text to a file.

        Raises:
            OSError: as `put`.
        """
        self.put(obj.encode(encoding), filepath)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a new file through to the disk.

        Raises:
            OSError: if the file exists, the disk is full or the folder unwritable.
        """
        with open(path, 'xb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _clear(partial: Path) -> None:
    """Removes what a killed writer left, or a link to another file; a pipe or a folder is somebody's.

    Raises:
        FileExistsError: if it is no file and no link.
    """
    if os.path.lexists(partial) and not (partial.is_symlink() or partial.is_file()):
        raise FileExistsError(f'{partial} is no regular file, and is in the way: move it away')
    partial.unlink(missing_ok=True)


def remove_partial_files(
    folder: str | Path, names: Iterable[str] = (PARTIAL.format('*.pth'), REPLACED.format('*.pth'))
) -> list[Path]:
    """Removes what killed writers of checkpoints left half done in a folder, and returns the paths.

    Args:
        folder: The folder.
        names: Patterns of the names.
    """
    paths = sorted(path for name in names for path in Path(folder).glob(name))
    folders = [path for path in paths if _holds_shards(path)]
    files = [path for path in paths if path.is_symlink() or path.is_file()]
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)
    for path in files:
        path.unlink(missing_ok=True)
    return [*folders, *files]


def _holds_shards(path: Path) -> bool:
    """True for a folder with parts of a sharded checkpoint and nothing else."""
    names = os.listdir(path) if path.is_dir() and not path.is_symlink() else ()
    return bool(names) and all(map(OF_SHARDS.fullmatch, names))


def clear_folder(partial: Path) -> None:
    """Makes room for a new folder of shards.

    Raises:
        FileExistsError: if something else is in the way.
    """
    if _holds_shards(partial):
        shutil.rmtree(partial)
    elif os.path.lexists(partial):
        raise FileExistsError(f'{partial} is no part of a checkpoint, and is in the way: move it away')


def put_in_place(partial: Path, target: Path) -> None:
    """Gives a complete file or folder its name; :func:`bring_back` undoes the replacement of a folder cut short.

    Raises:
        OSError: if it cannot be renamed.
    """
    if not (_holds_shards(partial) or _holds_shards(target)):
        os.replace(partial, target)
        _flush_folder(target.parent)
        return
    replaced = target.with_name(REPLACED.format(target.name))
    if os.path.lexists(target):
        clear_folder(replaced)
        os.rename(target, replaced)
    os.rename(partial, target)
    _flush_folder(target.parent)
    remove_partial_files(target.parent, (replaced.name,))


def bring_back(folder: str | Path) -> None:
    """Gives folders their names back that a process was replacing when it was killed."""
    for replaced in Path(folder).glob(REPLACED.format('*.pth')):
        name = replaced.name.removeprefix('.').removesuffix('.replaced')
        if not os.path.lexists(replaced.with_name(name)):
            with suppress(FileNotFoundError):  # another process was faster
                os.rename(replaced, replaced.with_name(name))


def remove_folder(path: Path) -> None:
    """Removes a folder; a process killed meanwhile leaves no half of it under its name."""
    partial = path.with_name(PARTIAL.format(path.name))
    clear_folder(partial)
    os.rename(path, partial)
    shutil.rmtree(partial, ignore_errors=True)


def check_record_file(path: Path) -> None:
    """Checks that lines added to a file go to no other file.

    Raises:
        FileExistsError: if the path is a link, one of several hard links, or no regular file.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise FileExistsError(f'{path} is a link or no regular file, and is not written to: move it away')


def write_beside(path: Path, text: str) -> Path:
    """Writes a text under the first free name of `a.py`, `a_2.py`, `a_3.py` ..., and returns the path.

    A file that holds the text already is left as it is, and so is every other one.

    Raises:
        OSError: if no file can be made.
    """
    for number in count(1):
        candidate = path if number == 1 else path.with_stem(f'{path.stem}_{number}')
        try:
            with open(candidate, 'x', encoding='utf-8') as file:
                file.write(text)
            return candidate
        except FileExistsError:
            if candidate.is_file() and candidate.read_bytes() == text.encode():
                return candidate


def identity(folder: str | Path) -> tuple[int, int] | None:
    """Device and inode of a folder, which another folder of the same name does not have; None if there is none."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _flush_folder(folder: Path) -> None:
    """Makes a rename durable: without it a power cut may undo the rename after the old file was removed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
