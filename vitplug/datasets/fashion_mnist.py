"""Fashion-MNIST: 70,000 photographs of garments in ten classes, 28 by 28 grey pixels each.

The data set has four files in the IDX format, packed with gzip. mmpretrain's ``FashionMNIST`` reads them unpacked;
:func:`unpack` checks and unpacks them.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .converting import write_new

DEBIAN_FOLDER = '/usr/share/datasets/fashion-mnist'
HOW_TO_GET = (
    'they are in the package dataset-fashion-mnist of Debian and Ubuntu (apt-get install dataset-fashion-mnist, in '
    f'{DEBIAN_FOLDER}), and on https://github.com/zalandoresearch/fashion-mnist'
)
CLASSES = (
    'T-shirt/top',
    'Trouser',
    'Pullover',
    'Dress',
    'Coat',
    'Sandal',
    'Shirt',
    'Sneaker',
    'Bag',
    'Ankle boot',
)
# Shape and SHA-256 of the unpacked files.
FILES = {
    'train-images-idx3-ubyte': ((60000, 28, 28), 'c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888'),
    'train-labels-idx1-ubyte': ((60000,), 'bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9'),
    't10k-images-idx3-ubyte': ((10000, 28, 28), '5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b'),
    't10k-labels-idx1-ubyte': ((10000,), '0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34'),
}
PARTS = {'train': 'train', 'val': 't10k'}
_UBYTE = 8


def read_idx(data: bytes, name: str) -> np.ndarray:
    """An array of bytes in the IDX format: two zeros, type, number of axes, sizes as 32-bit integers, values.

    Args:
        data: Content of the file, unpacked.
        name: Its name, for messages.

    Returns:
        Read-only uint8 array.

    Raises:
        ValueError: If the file has another type or length than its header says.
    """
    if len(data) < 4 or data[:2] != b'\0\0' or data[2] != _UBYTE:
        raise ValueError(f'{name}: is no IDX file of unsigned bytes')
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError(f'{name}: ends in its header')
    shape = struct.unpack(f'>{data[3]}I', data[4:start])
    if len(data) != start + math.prod(shape):
        raise ValueError(f'{name}: has {len(data)} bytes, expected {start + math.prod(shape)} for the shape {shape}')
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def load_split(folder: str | os.PathLike, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Photographs and classes of a split, from packed or unpacked files.

    Args:
        folder: Folder with the files.
        split: ``'train'`` (60,000) or ``'val'`` (the 10,000 of the test set).

    Returns:
        uint8 arrays of shape (N, 28, 28), from 0 (background), and (N,).

    Raises:
        FileNotFoundError: If a file is missing; says how to get it.
        ValueError: If a file is damaged.
    """
    images, labels = (_read(Path(folder), f'{PARTS[split]}-{kind}-ubyte') for kind in ('images-idx3', 'labels-idx1'))
    return images, labels


def _read(folder: Path, name: str) -> np.ndarray:
    path = next((path for path in (folder / name, folder / f'{name}.gz') if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(f'no {name}.gz, nor {name}, in {folder.absolute()}: {HOW_TO_GET}')
    values = read_idx(_unpacked(path), str(path))
    if values.shape != FILES[name][0]:
        raise ValueError(f'{path}: has the shape {values.shape}, expected {FILES[name][0]}')
    return values


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != '.gz':
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise ValueError(f'{path}: cannot be unpacked: {error}') from error


def unpack(source: str | os.PathLike, target: str | os.PathLike, log: Callable[[str], object] = print) -> Path:
    """Unpacks the four files into the folder that ``FashionMNIST`` of mmpretrain reads.

    A file that is complete already is left alone.

    Args:
        source: Folder with the packed files.
        target: Folder to make.
        log: Called with each line of progress.

    Returns:
        The target.

    Raises:
        FileNotFoundError: If a packed file is missing; says how to get it.
        ValueError: If a packed file is not the published one.
        FileExistsError: If another file of the name is in the target.
    """
    contents = {name: _checked(Path(source), name) for name in FILES}
    target = Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        is_new = write_new(target / name, data)
        log(f'{target / name}: {len(data):,} bytes' if is_new else f'{target / name} is complete already')
    return target


def _checked(folder: Path, name: str) -> bytes:
    """The content of a packed file, which is the published one."""
    path = folder / f'{name}.gz'
    if not path.is_file():
        raise FileNotFoundError(f'no {path.name} in {folder.absolute()}: {HOW_TO_GET}')
    data = _unpacked(path)
    digest, expected = hashlib.sha256(data).hexdigest(), FILES[name][1]
    if digest != expected:
        raise ValueError(f'{path}: unpacked, it has the SHA-256 {digest}, expected {expected}: get the file again')
    return data
