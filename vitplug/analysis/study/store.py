"""The folder of an analysis: whose it is, and what each image gave, so that a second call goes on."""

import io
import json
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vitplug.files.atomic import AtomicBackend
from vitplug.files.limits import check_regular
from vitplug.runs.saving.lock import locked
from vitplug.statistics.images import Arrays

IDENTITY = 'study.json'
ARRAYS = 'arrays'
LOCK = '.analysis.lock'
# Seconds between two writes: a kill costs at most these, and files are rewritten as a whole.
INTERVAL = 20.0


class Store:
    """What the images gave, in a folder: a file for each measure and model.

    A file `arrays/MODEL.MEASURE.npz` has an array for each unit (an image, or a group of images) and value, under
    `NUMBER/VALUE`. Files are written as a whole or not at all.

    Args:
        folder: New, empty, or of the same analysis.
        identity: What the numbers depend on besides the measure, by name, as JSON can hold it.

    Raises:
        FileExistsError: If the folder is another analysis', or holds other files; names what differs.
    """

    def __init__(self, folder: Path, identity: Mapping):
        self.folder = folder
        check_folder(folder)
        _check_identity(folder / IDENTITY, identity)
        self._kept: dict[tuple[str, str], dict[int, Arrays]] = {}
        self._changed: set[tuple[str, str]] = set()
        self._written = time.monotonic()
        AtomicBackend().put_text(json.dumps(identity, indent=1), folder / IDENTITY)

    def units(self, model: str, measure: str) -> dict[int, Arrays]:
        """What is there for a measure of a model, by number of the unit.

        Raises:
            ValueError: If the file is broken; names it.
        """
        key = model, measure
        if key not in self._kept:
            self._kept[key] = _read(self._path(*key))
        return self._kept[key]

    def add(self, model: str, measure: str, unit: int, arrays: Arrays) -> None:
        """Keeps the arrays of a unit; they are on the disk after :meth:`save`."""
        self.units(model, measure)[unit] = arrays
        self._changed.add((model, measure))

    def save_sometimes(self) -> None:
        """Writes what is new if the last write was some time ago."""
        if time.monotonic() - self._written >= INTERVAL:
            self.save()

    def save(self) -> None:
        """Writes what is new.

        Raises:
            OSError: If it cannot be written; what was written before stays.
        """
        for key in sorted(self._changed):
            content = io.BytesIO()
            units = sorted(self._kept[key].items())
            np.savez_compressed(
                content, **{f'{unit:05}/{name}': array for unit, arrays in units for name, array in arrays.items()}
            )
            AtomicBackend().put(content.getvalue(), self._path(*key))
        self._changed.clear()
        self._written = time.monotonic()

    def _path(self, model: str, measure: str) -> Path:
        return self.folder / ARRAYS / f'{model.replace(" ", "_")}.{measure}.npz'


@contextmanager
def open_store(folder: Path, identity: Mapping) -> Iterator[Store]:
    """The store of a folder, which no other process may use meanwhile.

    Args:
        folder: See :class:`Store`.
        identity: See :class:`Store`.

    Raises:
        BlockingIOError: If an analysis is running in the folder; names its process.
        FileExistsError: As :class:`Store` does.
    """
    check_folder(folder)
    with locked(folder / LOCK, 'analysis', '--out'):
        yield Store(folder, identity)


def _read(path: Path) -> dict[int, dict[str, np.ndarray]]:
    units: dict[int, dict[str, np.ndarray]] = {}
    if not path.exists():
        return units
    try:
        check_regular(path)
        with np.load(path, allow_pickle=False) as content:
            for key in content.files:
                number, _, name = key.partition('/')
                units.setdefault(int(number), {})[name] = content[key]
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f'{path} cannot be read ({error}): remove it, and it is computed again') from error
    return units


def check_folder(folder: Path) -> None:
    """Checks that a folder is new, empty, or of an analysis.

    Raises:
        FileExistsError: If it holds other files, or is one.
    """
    if folder.is_dir() and (folder / IDENTITY).is_file():
        return
    # A process that ended before its first record leaves its lock file alone.
    if folder.exists() and not (folder.is_dir() and all(path.name == LOCK for path in folder.iterdir())):
        raise FileExistsError(f'--out: {folder} holds other files, or is one: choose a new or an empty folder')


def _check_identity(path: Path, identity: Mapping) -> None:
    """Checks that the record of an analysis, if there is one, is of the same analysis.

    Raises:
        FileExistsError: If it is another's; names what differs.
    """
    if not path.exists():
        return
    try:
        stored = json.loads(path.read_text())
        differing = [key for key in {**stored, **identity} if stored.get(key) != identity.get(key)]
    except (ValueError, AttributeError, TypeError) as error:
        raise FileExistsError(f'--out: {path} is no record of an analysis: choose another folder') from error
    if differing:
        shown = '; '.join(f'{key}: {_short(stored.get(key))}, now {_short(identity.get(key))}' for key in differing)
        raise FileExistsError(f'--out: {path.parent} is of another analysis ({shown}): choose another folder')


def _short(value) -> str:
    text = json.dumps(value).replace('"', '')
    return text if len(text) <= 160 else f'{text[:140]}...{text[-16:]}'
