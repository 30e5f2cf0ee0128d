"""Folders of data: listed with links followed, less hidden files."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

# Images of all formats that a data set or a prediction may have.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')


def files_below(folder: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Lists a folder and all folders in it, with links followed.

    File managers and editors leave hidden files and folders beside images. Data sets overlook them.

    Yields:
        Path of a folder, and the names of the files in it that do not begin with a dot.
    """
    for path, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith('.')]
        yield path, [name for name in names if not name.startswith('.')]


def names_in(folder: str | Path, suffixes: Collection[str] = ()) -> list[str]:
    """The sorted relative names of the files of :func:`files_below`.

    Args:
        folder: The folder.
        suffixes: Endings of the files that count, in small or large letters; all do by default.
    """
    endings = tuple(suffix.lower() for suffix in suffixes) or ('',)
    paths = (os.path.relpath(os.path.join(path, name), folder) for path, names in files_below(folder) for name in names)
    return sorted(path for path in paths if path.lower().endswith(endings))


def files_in(folder: Path, *suffixes: str) -> list[Path]:
    """The sorted files in a folder itself that have a suffix, in small or large letters, and are not hidden."""
    return sorted(path for path in folder.glob('[!.]*') if path.suffix.lower() in suffixes)
