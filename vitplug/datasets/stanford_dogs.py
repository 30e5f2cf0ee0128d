"""Image lists for Stanford Dogs, which mmpretrain has no class for.

The data set comes as two archives, images and lists, that unpack into one folder::

    root/Images/n02085620-Chihuahua/n02085620_10074.jpg     120 folders, one for each class
    root/train_list.mat, root/test_list.mat                 file names and labels 1..120

:func:`list_stanford_dogs` checks them and writes what mmpretrain's ``CustomDataset`` reads, a file name and a label
0..119 on each line::

    root/meta/train.txt, root/meta/test.txt                     the data set's own split
    root/meta/pooled_{train,val,test}.txt                       both lists shuffled and cut 70 : 15 : 15
    root/meta/classes.txt                                       names of the classes, one on each line
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

HOME = 'http://vision.stanford.edu/aditya86/ImageNetDogs'
LISTS = {'train': 'train_list.mat', 'test': 'test_list.mat'}
NUM_CLASSES = 120
SHARES = {'train': 0.70, 'val': 0.15, 'test': 0.15}
SHOWN_EXAMPLES = 3

Entry = tuple[str, int]


def list_stanford_dogs(root: str | Path, seed: int = 0, overwrite: bool = False) -> dict[str, int]:
    """Checks an unpacked Stanford Dogs and writes its image lists.

    Args:
        root: Folder with ``Images`` and the two lists.
        seed: Seed of the pooled split; the paper of Gaussian attention bias has 0.
        overwrite: Whether lists of other content are replaced.

    Returns:
        Number of images in each list, by name.

    Raises:
        FileNotFoundError: If a list or images are missing.
        FileExistsError: If there are lists of other content and ``overwrite`` is False.
        ValueError: If a list cannot be read, an image is empty or a label does not fit its folder.
        ImportError: If SciPy is not installed.
    """
    root = Path(root)
    entries = {split: read_list(root / name) for split, name in LISTS.items()}
    everything = [entry for split in entries.values() for entry in split]
    classes = check_classes(everything, root)
    check_images(everything, root / 'Images')
    pooled = {f'pooled_{split}': part for split, part in split_pool(everything, seed).items()}
    lists = {name: _lines(part) for name, part in {**entries, **pooled}.items()}
    write_texts(root / 'meta', {**lists, 'classes': '\n'.join(classes) + '\n'}, overwrite)
    return {name: len(part) for name, part in {**entries, **pooled}.items()}


def read_list(path: Path) -> list[Entry]:
    """File names and labels 0..119 of one of the data set's lists.

    Raises:
        FileNotFoundError: If there is no such list.
        ValueError: If it cannot be read or has a label outside 1..120.
        ImportError: If SciPy is not installed.
    """
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError('the lists of Stanford Dogs are MATLAB files: pip install scipy') from error
    if not path.is_file():
        raise FileNotFoundError(f'no such list: {path.absolute()}; download lists.tar from {HOME} and unpack it there')
    try:
        content = loadmat(path)
        names = [str(cell[0]) for cell in content['file_list'].ravel()]
        labels = [int(label) for label in content['labels'].ravel()]
    # SciPy raises whatever the damage leads to.
    except Exception as error:
        raise ValueError(
            f'{path.absolute()} is no list of Stanford Dogs or is damaged ({error}): download it anew'
        ) from error
    if not names or len(names) != len(labels):
        raise ValueError(f'{path.absolute()} has {len(names)} file names and {len(labels)} labels: download it anew')
    outside = [f'{name}: {label}' for name, label in zip(names, labels, strict=True) if not 1 <= label <= NUM_CLASSES]
    if outside:
        raise ValueError(f'{path.absolute()} has labels outside 1..{NUM_CLASSES}: {_some(outside)}; download it anew')
    return [(name, label - 1) for name, label in zip(names, labels, strict=True)]


def check_classes(entries: Sequence[Entry], root: Path) -> list[str]:
    """Names of the classes by label: each label must belong to one folder.

    Raises:
        ValueError: If two folders share a label, a folder has two, or a label has none.
    """
    folders = {(label, name.split('/')[0]) for name, label in entries}
    wrong = len(folders) != NUM_CLASSES or len({label for label, _ in folders}) != NUM_CLASSES
    if wrong or len({folder for _, folder in folders}) != NUM_CLASSES:
        raise ValueError(
            f'the lists in {root.absolute()} give {len(folders)} pairs of folder and label instead of {NUM_CLASSES}: '
            'download them anew'
        )
    return [folder.partition('-')[2] for _, folder in sorted(folders)]


def check_images(entries: Sequence[Entry], folder: Path) -> None:
    """Checks that every listed image is there and not empty.

    Raises:
        FileNotFoundError: If images are missing.
        ValueError: If images have no bytes.
    """
    sizes = {name: _size(folder / name) for name, _ in entries}
    missing = [name for name, size in sizes.items() if size is None]
    if missing:
        raise FileNotFoundError(
            f'{folder.absolute()} lacks {len(missing)} of {len(sizes)} images: {_some(missing)}; download images.tar '
            f'from {HOME} and unpack it there'
        )
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise ValueError(f'{folder.absolute()} has {len(empty)} empty images: {_some(empty)}; unpack images.tar anew')


def split_pool(entries: Sequence[Entry], seed: int) -> dict[str, list[Entry]]:
    """All images shuffled and cut 70 : 15 : 15.

    Raises:
        ValueError: If the seed is negative.
    """
    if seed < 0:
        raise ValueError(f'seed={seed}: expected an integer of at least 0')
    order = np.random.RandomState(seed).permutation(len(entries))
    ends = np.rint(np.cumsum(list(SHARES.values())) * len(entries)).astype(int)
    parts = np.split(order, ends[:-1])
    return {split: [entries[i] for i in part] for split, part in zip(SHARES, parts, strict=True)}


def write_texts(folder: Path, texts: Mapping[str, str], overwrite: bool) -> None:
    """Writes ``folder/<name>.txt`` files.

    Raises:
        FileExistsError: If one exists with other content and ``overwrite`` is False; then none is written.
    """
    paths = {folder / f'{name}.txt': text for name, text in texts.items()}
    other = [path.name for path, text in paths.items() if path.is_file() and path.read_text(encoding='utf-8') != text]
    if other and not overwrite:
        raise FileExistsError(
            f'{folder.absolute()} has other lists already ({_some(other)}): add --overwrite to replace'
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        path.write_text(text, encoding='utf-8')


def _lines(entries: Sequence[Entry]) -> str:
    return ''.join(f'{name} {label}\n' for name, label in entries)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _some(examples: Sequence[str]) -> str:
    more = len(examples) - SHOWN_EXAMPLES
    return ', '.join(examples[:SHOWN_EXAMPLES]) + (f' and {more} more' if more > 0 else '')
