"""Fingerprints of files and folders: equal where these hold the same, wherever they lie."""

import hashlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from .folders import files_below

DIGITS = 16
CHUNK = 1 << 20  # bytes


def of_file(path: str | Path) -> str:
    """A hash of a file's content.

    Raises:
        OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()[:DIGITS]


def of_folder(path: str | Path, sizes: bool, suffixes: Collection[str] = ()) -> str:
    """A hash of the relative names of a folder's files, at any depth; their content is not read.

    Args:
        path: The folder.
        sizes: Whether the sizes of the files count as well.
        suffixes: Endings of the files that count, in small or large letters; all do by default.

    Raises:
        OSError: if the folder cannot be listed.
        ValueError: as :func:`~vitplug.files.folders.files_below` says.
    """
    names = names_in(path, suffixes)
    if not sizes:
        return of_names(names)
    return of_names(f'{name}\0{os.stat(os.path.join(path, name)).st_size}' for name in names)


def of_names(names: Iterable[str]) -> str:
    """A hash of names in their order."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(os.fsencode(name) + b'\0')
    return digest.hexdigest()[:DIGITS]


def of_place(path: str | Path, sizes: bool = False, suffixes: Collection[str] = ()) -> str:
    """:func:`of_folder` of a folder, :func:`of_file` of anything else.

    Raises:
        OSError, ValueError: as these two say.
    """
    return of_folder(path, sizes, suffixes) if os.path.isdir(path) else of_file(path)


def names_in(folder: str | Path, suffixes: Collection[str] = ()) -> list[str]:
    """The sorted relative names of the files in a folder, links followed, less those that begin with a dot.

    Data sets overlook these as well; file managers leave them beside images.

    Args:
        folder: The folder.
        suffixes: Endings of the files that count, in small or large letters; all do by default.

    Raises:
        OSError, ValueError: as :func:`of_folder` says.
    """
    root, endings = str(folder), tuple(suffix.lower() for suffix in suffixes) or ('',)
    paths = []
    for parent, names in files_below(root):
        below = os.path.relpath(parent, root)
        chosen = [name for name in names if name.lower().endswith(endings) and not name.startswith('.')]
        paths += chosen if below == '.' else [os.path.join(below, name) for name in chosen]
    return sorted(paths)
