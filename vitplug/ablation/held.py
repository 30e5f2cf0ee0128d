"""What the data sets and checkpoints of a cell hold, so that neither a path nor a name stands for something else."""

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from vitplug.config.data_files import data_places
from vitplug.config.parts import strings_in
from vitplug.files.fingerprint import of_file, of_folder, of_names

Held = Mapping[str, tuple[str, str]]
"""Absolute path and fingerprint by place in the config."""

WEIGHTS = re.compile(r'(^|\.)(load_from|checkpoint|pretrained|\w+_path)$')
# Samples that a cell learns from and is measured by.
SPLITS = ('train', 'val')


def held_by(cfg: Config) -> dict[str, tuple[str, str]]:
    """Paths and fingerprints of the data and checkpoints of a config.

    A folder is known by the names and sizes of its files, a file by its content, and what lies elsewhere by its
    address.

    Raises:
        OSError: If one cannot be read.
    """
    places = [*data_places(cfg, SPLITS), *((key, Path(text)) for key, text in _weights(cfg))]
    held = {key: (os.path.abspath(path), _fingerprint(os.path.abspath(path))) for key, path in places if path.exists()}
    return held | {key: (text, of_names([text])) for key, text in _weights(cfg) if '://' in text}


def _weights(cfg: Config) -> list[tuple[str, str]]:
    parts = {name: cfg.get(name) for name in ('load_from', 'model')}
    return [(key, text) for key, text in strings_in(parts) if WEIGHTS.search(key) and text]


@functools.cache
def _fingerprint(path: str) -> str:
    return of_folder(path) if os.path.isdir(path) else of_file(path)


def differing(before: Held, now: Held) -> list[str]:
    """The places that hold something else, as far as both are known."""
    return sorted(key for key in before.keys() & now.keys() if before[key][1] != now[key][1])


def holds_the_same(before: Held, now: Held) -> bool:
    """Whether data and checkpoints are the same, wherever they lie."""
    return not differing(before, now)


def changed_in_place(before: Held, now: Held) -> bool:
    """Whether what differs has the path that it had: somebody worked on the files."""
    return all(before[key][0] == now[key][0] for key in differing(before, now))
