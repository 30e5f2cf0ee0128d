"""Folders of data: listed with links followed, less hidden files."""

import os
from collections.abc import Collection
from pathlib import Path

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
