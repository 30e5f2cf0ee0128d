"""A cache of features: computed once for some weights, data and pixels, and never used for others."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from tqdm import tqdm

from vitplug.files.atomic import AtomicBackend
from vitplug.files.limits import check_regular
from vitplug.runs.saving.lock import locked

IDENTITY = 'features.json'
LOCK = '.features.lock'
DIGEST = 'digest'
GIB = 2**30


@dataclass(frozen=True)
class Record:
    """The features of one image, and its truth.

    Attributes:
        features: ``(T, D)``, one row for an image, or one for each patch in reading order.
        label: The class, shape (), or the label map ``(height, width)`` with :attr:`VOID`.
        grid: Rows and columns of patches; 1, 1 for an image.
        padded: Height and width of the model's input.
        shape: Height and width of the image in it, at its upper left.
    """

    features: np.ndarray
    label: np.ndarray
    grid: tuple[int, int]
    padded: tuple[int, int]
    shape: tuple[int, int]

    #: Label of pixels without a class.
    VOID: ClassVar[int] = 255


class Cache:
    """The features of one model for the images of some splits, in files of a few images each.

    A file `SPLIT.NUMBER.npz` is written as a whole or not at all, so that a killed run goes on with the next one. It
    has a digest of its numbers and of the identity: a file that was changed, or is another model's, is refused.

    Args:
        root: Folder of all caches; this one has a folder in it, named by a hash of the identity.
        identity: What the features depend on, as JSON can hold it.
        chunk: Images in a file.

    Raises:
        ValueError: If the folder has another identity; names what differs.
    """

    def __init__(self, root: Path, identity: Mapping, chunk: int):
        self.identity = dict(identity, images_in_a_file=chunk)
        self.text = json.dumps(self.identity, indent=1, sort_keys=True)
        self.key = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        self.root, self.folder, self.chunk = root, root / self.key, chunk
        self._check_identity()

    def _check_identity(self) -> None:
        path = self.folder / IDENTITY
        if not self.folder.exists():
            return
        try:
            stored = json.loads(path.read_text())
            differing = [name for name in {**stored, **self.identity} if stored.get(name) != self.identity.get(name)]
        except FileNotFoundError:
            differing = [] if all(file.name == LOCK for file in self.folder.iterdir()) else [IDENTITY]
        except (OSError, ValueError, TypeError, AttributeError):
            differing = [IDENTITY]
        if differing:
            raise ValueError(
                f'--cache: {self.folder} holds features of other {", ".join(differing)}, or its {IDENTITY} was '
                'changed: remove the folder, and the features are computed again; or name another --cache'
            )

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Holds the folder for this process.

        Raises:
            BlockingIOError: If another process computes these features; names it.
        """
        with locked(self.folder / LOCK, 'probe', '--cache'):
            AtomicBackend().put_text(self.text, self.folder / IDENTITY)
            yield

    def fill(self, split: str, count: int, compute: Callable[[Sequence[int]], list[Record]], limit: float) -> None:
        """Computes what is missing, with a progress bar.

        Args:
            split: Name of the split.
            count: Number of its images.
            compute: Indices of images to their records.
            limit: Most GiB that the folder of all caches may have.

        Raises:
            ValueError: If the features would be larger than the limit; says how large.
        """
        missing = [number for number in range(self._files(count)) if not self._path(split, number).exists()]
        bar = tqdm(total=count, desc=f'features {split}', unit='image', mininterval=1.0, disable=None)
        with bar:
            bar.update(count - sum(len(self._images(number, count)) for number in missing))
            for number in missing:
                images = self._images(number, count)
                content = self._packed(split, number, compute(images))
                self._check_limit(len(content) * len(missing[missing.index(number) :]), limit)
                AtomicBackend().put(content, self._path(split, number))
                bar.update(len(images))

    def records(self, split: str, count: int) -> Iterator[Record]:
        """The records of a split in the order of its images.

        Raises:
            ValueError: If a file is missing, broken, changed, or of another model; names it.
        """
        for number in range(self._files(count)):
            yield from self._read(split, number)

    def _files(self, count: int) -> int:
        return -(-count // self.chunk)

    def _images(self, number: int, count: int) -> range:
        return range(number * self.chunk, min(count, (number + 1) * self.chunk))

    def _path(self, split: str, number: int) -> Path:
        return self.folder / f'{split}.{number:05}.npz'

    def _check_limit(self, wanted: int, limit: float) -> None:
        used = sum(path.stat().st_size for path in self.root.rglob('*.npz'))
        if used + wanted > limit * GIB:
            raise ValueError(
                f'--cache-gib {limit:g}: {self.root} has {used / GIB:.2f} GiB, and {wanted / GIB:.2f} GiB are to come: '
                'remove folders of models that you are done with, use fewer --layers or images (--num-train, '
                '--num-test), or allow more'
            )

    def _packed(self, split: str, number: int, records: Sequence[Record]) -> bytes:
        arrays = dict(
            features=np.concatenate([record.features for record in records]),
            grids=np.array([record.grid for record in records]),
            padded=np.array([record.padded for record in records]),
            shapes=np.array([record.shape for record in records]),
            labels=np.concatenate([record.label.reshape(-1) for record in records]),
            label_shapes=np.array([record.label.shape for record in records]),
        )
        content = io.BytesIO()
        np.savez(content, **arrays, **{DIGEST: np.array(self._digest(split, number, arrays))})
        return content.getvalue()

    def _digest(self, split: str, number: int, arrays: Mapping[str, np.ndarray]) -> str:
        digest = hashlib.sha256(f'{self.text}\0{split}\0{number}'.encode())
        for name in sorted(arrays):
            array = arrays[name]
            digest.update(f'{name}\0{array.dtype.str}\0{array.shape}'.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _read(self, split: str, number: int) -> list[Record]:
        path = self._path(split, number)
        try:
            check_regular(path)
            with np.load(path, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
            digest = str(arrays.pop(DIGEST))
        except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise ValueError(f'{path} cannot be read ({error}): remove it, and it is computed again') from error
        if digest != self._digest(split, number, arrays):
            raise ValueError(
                f'{path} was changed, or holds features of other weights, data or pixels: remove it, and it is '
                'computed again'
            )
        return _unpacked(arrays)


def _unpacked(arrays: Mapping[str, np.ndarray]) -> list[Record]:
    rows = np.cumsum([0, *np.prod(arrays['grids'], axis=1)])
    sizes = [int(np.prod(shape)) for shape in arrays['label_shapes']]
    places = np.cumsum([0, *sizes])
    return [
        Record(
            arrays['features'][rows[i] : rows[i + 1]],
            arrays['labels'][places[i] : places[i + 1]].reshape(arrays['label_shapes'][i]),
            *(tuple(map(int, arrays[name][i])) for name in ('grids', 'padded', 'shapes')),
        )
        for i in range(len(sizes))
    ]
