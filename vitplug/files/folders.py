"""Files of data: folders listed with links followed, less hidden files; hashes of what files and folders hold."""

import hashlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from tqdm import tqdm

DIGITS = 16
CHUNK = 1 << 20  # bytes

# Images of all formats that a data set or a prediction may have.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')


def names_in(folder: str | Path, suffixes: Collection[str] = ()) -> list[str]:
    """The sorted relative names of the files in a folder, at any depth, with links followed.

    Hidden files and folders, which file managers and editors leave beside images, do not count.

    Args:
        folder: The folder.
        suffixes: Endings of the files that count, in small or large letters; all do by default.
    """
    endings, found = tuple(suffix.lower() for suffix in suffixes) or ('',), []
    for path, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith('.')]
        found += [os.path.relpath(os.path.join(path, name), folder) for name in names if not name.startswith('.')]
    return sorted(path for path in found if path.lower().endswith(endings))


def files_in(folder: Path, *suffixes: str) -> list[Path]:
    """The sorted files in a folder itself that have a suffix, in small or large letters, and are not hidden."""
    return sorted(path for path in folder.glob('[!.]*') if path.suffix.lower() in suffixes)


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's content, hexadecimal; of a folder, such as a sharded checkpoint, see :func:`of_folder`."""
    if os.path.isdir(path):
        return of_folder(path)
    digest = hashlib.sha256()
    with open(path, 'rb') as file:  # hashlib.file_digest is not in Python 3.10
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def of_file(path: str | Path) -> str:
    """The first digits of :func:`file_hash`."""
    return file_hash(path)[:DIGITS]


def of_folder(path: str | Path) -> str:
    """A hash of the relative names and the bytes of a folder's files, at any depth; a large one has a progress line."""
    names = tqdm(names_in(path), desc=f'reading {path}', unit='file', delay=5, leave=False, disable=None)
    return of_names(f'{name}\0{of_file(os.path.join(path, name))}' for name in names)


def of_names(names: Iterable[str]) -> str:
    """A hash of names in their order."""
    return hashlib.sha256(b''.join(os.fsencode(name) + b'\0' for name in names)).hexdigest()[:DIGITS]
