"""Image lists of the GAB paper's transfer experiments: all images of a data set, shuffled and split 70 : 15 : 15.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* does not use the data
sets' own splits. Its script (https://github.com/kmbmjn/GaussianAttentionBias, train.py) reads one folder per class with
torchvision's ``ImageFolder``, shuffles the image indices with NumPy's seed 0 and takes ``int(0.7 n)``, ``int(0.15 n)``
and ``int(0.15 n)`` of them; one or two images may be left over. :func:`write_pooled_lists` writes the same three parts
for mmpretrain's ``CustomDataset``, a file name and a label per line::

    root/meta/pooled_{train,val,test}.txt

The archives of Caltech-101 and Stanford Dogs have such folders, so their lists are the paper's splits. The paper's
folders of Pets and Cars are not public: classes of Pets are sorted by name, classes of Cars by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.files.folders import files_in

SHARES = {'train': 0.7, 'val': 0.15, 'test': 0.15}
EXTENSIONS = ('.jpg', '.jpeg', '.png')
SHOWN_EXAMPLES = 3

Class = str | int
Entry = tuple[str, int]


@dataclass(frozen=True)
class Pool:
    """A data set with pooled images.

    Attributes:
        archives: Archive to unpack into the root folder, and its source.
        folder: Folder of the images in the root.
        find: Returns class and file name in ``folder`` of every image, given root and folder.
        num_classes: Number of classes.
        num_images: Number of images.
    """

    archives: str
    folder: str
    find: Callable[[Path, Path], Iterable[tuple[Class, str]]]
    num_classes: int
    num_images: int


def write_pooled_lists(
    name: str, root: str | Path, seed: int = 0, num_images: int | None = None, overwrite: bool = False
) -> dict[str, int]:
    """Checks an unpacked data set and writes its lists.

    Args:
        name: One of :data:`POOLS`.
        root: Folder with the unpacked archives.
        seed: Seed of the shuffling; the paper has 0.
        num_images: Expected number of images; by default, that of the whole data set.
        overwrite: If True, existing lists that differ are replaced.

    Returns:
        Number of images in each list, by name of the list.

    Raises:
        FileNotFoundError: If a folder, a list or images are missing.
        FileExistsError: If existing lists differ and ``overwrite`` is False.
        ValueError: If an argument is out of range, a list cannot be read, an image is empty, or the number of classes
            or images is not the expected one.
        ImportError: If SciPy, which reads the lists of Cars, is not installed.
    """
    if name not in POOLS:
        raise ValueError(f'name={name!r}: expected one of {list(POOLS)}')
    if not 0 <= seed < 2**32:
        raise ValueError(f'seed={seed}: expected an integer from 0 to {2**32 - 1}')
    pool, root = POOLS[name], Path(root)
    entries = find_entries(pool, root, pool.num_images if num_images is None else num_images)
    lists = {f'pooled_{split}': part for split, part in split_pool(entries, seed).items()}
    texts = {key: ''.join(f'{image} {label}\n' for image, label in part) for key, part in lists.items()}
    write_texts(root / 'meta', texts, overwrite)
    return {key: len(part) for key, part in lists.items()}


def find_entries(pool: Pool, root: Path, num_images: int) -> list[Entry]:
    """File name and label of every image in the order of ``ImageFolder``: sorted classes, then sorted file names.

    Raises:
        FileNotFoundError: If the folder, a list or images are missing.
        ValueError: If the number of classes or images is not the expected one, or if an image is empty.
    """
    folder = root / pool.folder
    if not folder.is_dir():
        raise FileNotFoundError(f'no such folder: {folder.absolute()}; unpack {pool.archives} in {root.absolute()}')
    pairs = sorted(pool.find(root, folder))
    labels = {key: label for label, key in enumerate(sorted({key for key, _ in pairs}))}
    if len(labels) != pool.num_classes:
        raise ValueError(
            f'{folder.absolute()} has images of {len(labels)} classes instead of {pool.num_classes}: unpack '
            f'{pool.archives} again'
        )
    if len(pairs) != num_images:
        raise ValueError(
            f'{folder.absolute()} has {len(pairs)} images instead of {num_images}: unpack {pool.archives} again, or '
            f'add --images {len(pairs)} to split these'
        )
    entries = [(image, labels[key]) for key, image in pairs]
    check_images(entries, folder, pool.archives)
    return entries


def split_pool(entries: Sequence[Entry], seed: int) -> dict[str, list[Entry]]:
    """Shuffled parts of 70, 15 and 15 %, rounded down; the remaining images are in no part."""
    order = np.random.RandomState(seed).permutation(len(entries))
    sizes = [int(len(entries) * share) for share in SHARES.values()]
    parts = np.split(order, np.cumsum(sizes))
    return {split: [entries[i] for i in part] for split, part in zip(SHARES, parts[:-1], strict=True)}


def check_images(entries: Sequence[Entry], folder: Path, archives: str) -> None:
    """Checks that every image exists and is not empty.

    Raises:
        FileNotFoundError: If images are missing.
        ValueError: If images are empty.
    """
    sizes = {image: _size(folder / image) for image, _ in entries}
    missing = [image for image, size in sizes.items() if size is None]
    if missing:
        raise FileNotFoundError(
            f'{folder.absolute()} lacks {len(missing)} of {len(sizes)} images: {_some(missing)}; unpack {archives} '
            'again'
        )
    empty = [image for image, size in sizes.items() if size == 0]
    if empty:
        raise ValueError(f'{folder.absolute()} has {len(empty)} empty images: {_some(empty)}; unpack {archives} again')


def write_texts(folder: Path, texts: Mapping[str, str], overwrite: bool) -> None:
    """Writes ``folder/<name>.txt`` files.

    Raises:
        FileExistsError: If one exists with other content and ``overwrite`` is False; nothing is written.
    """
    paths = {folder / f'{name}.txt': text for name, text in texts.items()}
    other = [path.name for path, text in paths.items() if path.is_file() and path.read_text(encoding='utf-8') != text]
    if other and not overwrite:
        raise FileExistsError(
            f'{folder.absolute()} already has other lists ({_some(other)}): add --overwrite to replace them'
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        path.write_text(text, encoding='utf-8')


# --- classes of the data sets ---


def find_by_folder(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is its folder."""
    classes = [path for path in folder.iterdir() if path.is_dir()]
    return [(path.name, f'{path.name}/{image}') for path in classes for image in _images(path)]


def find_by_name(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is its file name up to the last underscore."""
    return [(image.rpartition('_')[0], image) for image in _images(folder)]


def find_by_list(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is a number in ``cars_annos.mat``.

    Raises:
        FileNotFoundError: If the list is missing.
        ValueError: If the list cannot be read.
        ImportError: If SciPy is not installed.
    """
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError('the list of Stanford Cars is a MATLAB file: pip install scipy') from error
    path = root / 'cars_annos.mat'
    if not path.is_file():
        raise FileNotFoundError(f'no such list: {path.absolute()}; get it from the source of car_ims.tgz')
    try:
        annotations = loadmat(path, squeeze_me=True)['annotations']
        return [
            (int(number), Path(image).name)
            for number, image in zip(annotations['class'], annotations['relative_im_path'], strict=True)
        ]
    # For a damaged file, SciPy can raise any error.
    except Exception as error:
        raise ValueError(
            f'{path.absolute()} is damaged or not a list of Stanford Cars ({error}): download it again'
        ) from error


def _images(folder: Path) -> list[str]:
    return [path.name for path in files_in(folder, *EXTENSIONS)]


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _some(examples: Sequence[str]) -> str:
    more = len(examples) - SHOWN_EXAMPLES
    return ', '.join(examples[:SHOWN_EXAMPLES]) + (f' and {more} more' if more > 0 else '')


POOLS = {
    'pets': Pool('images.tar.gz of https://www.robots.ox.ac.uk/~vgg/data/pets', 'images', find_by_name, 37, 7390),
    'caltech101': Pool(
        *('101_ObjectCategories.tar.gz of https://data.caltech.edu/records/mzrjq-6wc02', '101_ObjectCategories'),
        *(find_by_folder, 102, 9144),
    ),
    'cars': Pool(
        'car_ims.tgz (all images in one folder) of https://ai.stanford.edu/~jkrause/cars/car_dataset.html',
        *('car_ims', find_by_list, 196, 16185),
    ),
    'dogs': Pool(
        'images.tar of http://vision.stanford.edu/aditya86/ImageNetDogs', 'Images', find_by_folder, 120, 20580
    ),
}
