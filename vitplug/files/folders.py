"""Folders of data: listed with links followed, less hidden files, and checked."""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from .limits import check_regular

# Images of all formats that a data set or a prediction may have.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')
SHOWN_EXAMPLES = 3
# Links may lead to one folder in this many ways: a few links on each of many levels are as bad as a circle.
MAX_WAYS = 64


def files_below(folder: str | Path, complete: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Lists a folder and all folders in it, as `os.walk` does with links followed.

    File managers and editors leave hidden files beside images. Data sets overlook them.

    Args:
        folder: The folder.
        complete: Whether links to files that are not there are refused, and not listed.

    Yields:
        Path of a folder, and the names of the files in it that do not begin with a dot.

    Raises:
        ValueError: if a link leads back to a folder that it is in, or links to one folder in very many ways, so that
            there is no end, if a file is a pipe, a socket or a device, or, where `complete`, a link to none; names it.
    """
    ways = Counter()
    pending: list[tuple[str, frozenset]] = [(str(folder), frozenset())]
    while pending:
        path, above = pending.pop()
        status = os.stat(path)
        identity = status.st_dev, status.st_ino
        ways[identity] += 1
        if identity in above or ways[identity] > MAX_WAYS:
            raise ValueError(f'{path} leads to {os.path.realpath(path)} again: remove links until there is an end')
        with os.scandir(path) as entries:
            entries = list(entries)
        files = [entry for entry in entries if not entry.name.startswith('.') and not entry.is_dir()]
        for entry in files:
            # Data sets silently leave out files that are not regular.
            if not entry.is_file():
                check_regular(entry.path)
                if complete:
                    raise ValueError(f'{entry.path} is a link to {os.readlink(entry.path)}, where there is no file')
        yield path, [entry.name for entry in files]
        pending += [(entry.path, above | {identity}) for entry in entries if entry.is_dir()]


def names_in(folder: str | Path, suffixes: Collection[str] = ()) -> list[str]:
    """The sorted relative names of the files of :func:`files_below`.

    Args:
        folder: The folder.
        suffixes: Endings of the files that count, in small or large letters; all do by default.

    Raises:
        OSError: if the folder cannot be listed.
        ValueError: as :func:`files_below` says.
    """
    endings = tuple(suffix.lower() for suffix in suffixes) or ('',)
    paths = []
    for parent, names in files_below(folder):
        below = os.path.relpath(parent, folder)
        chosen = [name for name in names if name.lower().endswith(endings)]
        paths += chosen if below == '.' else [os.path.join(below, name) for name in chosen]
    return sorted(paths)


def files_in(folder: Path, *suffixes: str) -> list[Path]:
    """The sorted files in a folder itself that have a suffix, in small or large letters, and are not hidden."""
    return sorted(path for path in folder.glob('[!.]*') if path.suffix.lower() in suffixes)


def check_folder(folder: Path) -> None:
    """Checks that a data folder exists and holds at least one file, at any depth.

    Raises:
        FileNotFoundError: if it does not.
        ValueError: if links in it lead in a circle.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f'no such data folder: {folder.absolute()}')
    if not any(names for _, names in files_below(folder)):
        raise FileNotFoundError(f'the data folder is empty: {folder.absolute()}')


def check_pairs(images: tuple[Path, str], maps: tuple[Path, str]) -> None:
    """Checks that each image has a label map of the same name and each label map an image.

    Args:
        images: Folder and file name ending of the images.
        maps: The same of the label maps.

    Raises:
        ValueError: names both folders, the counts and a few examples.
    """
    if images == maps:
        return
    image_names, map_names = _names(*images), _names(*maps)
    lonely_images, lonely_maps = sorted(image_names - map_names), sorted(map_names - image_names)
    complaints = [
        f'{len(lonely)} without a partner, e.g. {", ".join(lonely[:SHOWN_EXAMPLES])}'
        if lonely
        else 'all have a partner'
        for lonely in (lonely_images, lonely_maps)
    ]
    if lonely_images or lonely_maps or not image_names:
        raise ValueError(
            f'images and annotations do not match: {len(image_names)} images *{images[1]} in {images[0].absolute()} '
            f'({complaints[0]}), {len(map_names)} annotations *{maps[1]} in {maps[0].absolute()} ({complaints[1]})'
        )


def _names(folder: Path, suffix: str) -> set[str]:
    """Relative paths, less the suffix, of the files in a folder that end in it."""
    return {name.removesuffix(suffix) for name in names_in(folder) if name.endswith(suffix)}
