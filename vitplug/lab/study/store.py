"""What each image gave, on disk: a file for each model, condition and measure, named by all that its numbers depend on.

Nothing is refused and nothing overwritten: other weights, settings, images, labels or definitions have another name, so
that their numbers are computed anew beside the old ones.
"""

import io
import re
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from vitplug.files.whole import write_bytes
from vitplug.statistics.images import Arrays

# Seconds between two writes: a kill costs at most these.
INTERVAL = 20.0


def digest(*parts: bytes | str) -> str:
    """A short hash of some parts; their ends count."""
    content = sha256()
    for part in parts:
        part = part.encode('utf-8', 'surrogateescape') if isinstance(part, str) else part
        content.update(len(part).to_bytes(8, 'big') + part)
    return content.hexdigest()[:16]


class Store:
    """Arrays of units (images, or groups of images) by series, in `FOLDER/arrays`.

    A series is a file; its units are named by their content. Files are written as a whole or not at all.
    """

    def __init__(self, folder: Path):
        self.folder = folder / 'arrays'
        self._kept: dict[str, dict[str, Arrays]] = {}
        self._changed: set[str] = set()
        self._written = time.monotonic()

    @staticmethod
    def series(names: tuple[str, ...], *content: str) -> str:
        """The name of a series: words for people, and a hash of all that its numbers depend on."""
        words = re.sub(r'[^\w.+=-]+', '-', '__'.join(names))[:120]
        return f'{words}__{digest(*names, *content)}'

    def units(self, series: str) -> dict[str, Arrays]:
        """What is there of a series, by unit."""
        if series not in self._kept:
            units, path = self._kept.setdefault(series, {}), self.folder / f'{series}.npz'
            if path.exists():
                with np.load(path, allow_pickle=False) as content:
                    for key in content.files:
                        unit, _, name = key.partition('/')
                        units.setdefault(unit, {})[name] = content[key]
        return self._kept[series]

    def add(self, series: str, unit: str, arrays: Arrays) -> None:
        """Keeps the arrays of a unit; they are on the disk after :meth:`save`."""
        self.units(series)[unit] = {name: np.asarray(value) for name, value in arrays.items()}
        self._changed.add(series)

    def save(self, at_least: float = 0.0) -> None:
        """Writes what is new, if the last write is so many seconds ago."""
        if time.monotonic() - self._written < at_least:
            return
        for series in sorted(self._changed):
            content, units = io.BytesIO(), sorted(self._kept[series].items())
            np.savez_compressed(content, **{f'{u}/{name}': array for u, unit in units for name, array in unit.items()})
            write_bytes(self.folder / f'{series}.npz', content.getvalue())
        self._changed.clear()
        self._written = time.monotonic()
