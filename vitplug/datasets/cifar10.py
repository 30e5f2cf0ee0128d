"""CIFAR-10, 60,000 photographs of 32 by 32 pixels: from the binary version to folders of classes.

The binary version (``cifar-10-binary.tar.gz``) runs no code when it is read, as the pickles of the Python version do.
Each record of its six files has the class, then 32 x 32 values of red, green and blue::

    data_batch_1.bin ... data_batch_5.bin   10,000 records of 3,073 bytes each, for training
    test_batch.bin                          the same for the test
    batches.meta.txt                        names of the classes, one a line

The result has PNG files that mmpretrain's ``CustomDataset`` reads: ``train/CLASS/data_batch_1_00000.png`` ... and
``test/CLASS/test_batch_00000.png`` ...
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .converting import write_png

CLASSES = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck')
BATCHES = {'train': [f'data_batch_{number}' for number in range(1, 6)], 'test': ['test_batch']}
RECORDS = 10_000
SIDE = 32
SHAPE = (3, SIDE, SIDE)
HOW_TO_GET = 'unpack cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html'


def convert(
    source: str | os.PathLike, out: str | os.PathLike, records: int = RECORDS, log: Callable[[str], object] = print
) -> Path:
    """Writes all photographs as PNG files in folders of their classes.

    All files are checked before the first one is written. Photographs that are there already are left alone, so a
    stopped call goes on.

    Args:
        source: Folder with the binary files, or the one that has ``cifar-10-batches-bin``.
        out: Folder to make.
        records: Photographs in each file.
        log: Called with a line for each file.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: If a file is missing; says how to get it.
        ValueError: If a file has another length, a class is none of 0 to 9, or the classes have other names.
        FileExistsError: If a photograph of the result exists with another content.
    """
    source, out = find_folder(Path(source)), Path(out)
    check_names(source / 'batches.meta.txt')
    batches = [
        (split, name, read_batch(source / f'{name}.bin', records)) for split in BATCHES for name in BATCHES[split]
    ]
    for split, name, (labels, images) in batches:
        for number, (label, image) in enumerate(zip(labels, images, strict=True)):
            write_png(out / split / CLASSES[label] / f'{name}_{number:05}.png', image)
        log(f'{name}: {len(labels):,} photographs in {out / split}')
    return out


def find_folder(source: Path) -> Path:
    """The folder with the binary files.

    Raises:
        FileNotFoundError: If a file is missing; says how to get it.
    """
    inner = source / 'cifar-10-batches-bin'
    folder = inner if inner.is_dir() else source
    names = ['batches.meta.txt', *(f'{name}.bin' for part in BATCHES.values() for name in part)]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f'{folder}: has no {missing[0]}: {HOW_TO_GET}')
    return folder


def check_names(path: Path) -> None:
    """Checks the names of the classes.

    Raises:
        ValueError: If they are others, such as those of CIFAR-100.
    """
    names = tuple(path.read_text(errors='replace').split())
    if names != CLASSES:
        raise ValueError(f'{path}: expected the classes {", ".join(CLASSES)}, found {", ".join(names[:10]) or "none"}')


def read_batch(path: Path, records: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    """Classes and photographs of a binary file.

    Args:
        path: The file.
        records: Photographs in it.

    Returns:
        uint8 arrays of shape (N,), and (N, 32, 32, 3) in RGB.

    Raises:
        ValueError: If the file has another length, or a class is none of 0 to 9.
    """
    size = 1 + np.prod(SHAPE)
    data = np.fromfile(path, np.uint8)
    if len(data) != records * size:
        raise ValueError(f'{path}: has {len(data):,} bytes, expected {records * size:,}: {HOW_TO_GET}')
    data = data.reshape(records, size)
    wrong = np.flatnonzero(data[:, 0] >= len(CLASSES))
    if len(wrong):
        raise ValueError(f'{path}: class {data[wrong[0], 0]} of record {wrong[0]} is none of 0 to 9: {HOW_TO_GET}')
    return data[:, 0], data[:, 1:].reshape(records, *SHAPE).transpose(0, 2, 3, 1)
