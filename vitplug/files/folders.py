"""Folders of data, with links followed."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .limits import check_regular

# Images of all formats that a data set or a prediction may have.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')
# Links may lead to one folder in this many ways: a few links on each of many levels are as bad as a circle.
MAX_WAYS = 64


def files_below(folder: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Lists a folder and all folders in it, as `os.walk` does with links followed.

    Yields:
        Path of a folder, and the names of what is in it and no folder.

    Raises:
        ValueError: if a link leads back to a folder that it is in, or links to one folder in very many ways, so that
            there is no end, or if a file is a pipe, a socket or a device; names it.
    """
    ways = Counter()
    pending: list[tuple[str, frozenset]] = [(str(folder), frozenset())]
    while pending:
        path, above = pending.pop()
        status = os.stat(path)
        here = status.st_dev, status.st_ino
        ways[here] += 1
        if here in above or ways[here] > MAX_WAYS:
            raise ValueError(f'{path} leads to {os.path.realpath(path)} again: remove links until there is an end')
        with os.scandir(path) as entries:
            entries = list(entries)
        files = [entry for entry in entries if not entry.is_dir()]
        for entry in files:
            # Data sets leave out what is no regular file, without a word.
            if not entry.is_file():
                check_regular(entry.path)
        yield path, [entry.name for entry in files]
        pending += [(entry.path, above | {here}) for entry in entries if entry.is_dir()]
