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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.files.folders import files_in

SHARES = {'train': 0.7, 'val': 0.15, 'test': 0.15}
EXTENSIONS = ('.jpg', '.jpeg', '.png')

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


def write_pooled_lists(name: str, root: str | Path, seed: int = 0, num_images: int | None = None) -> dict[str, int]:
    """Checks an unpacked data set and writes its lists.

    Args:
        name: One of :data:`POOLS`.
        root: Folder with the unpacked archives.
        seed: Seed of the shuffling; the paper has 0.
        num_images: Expected number of images; by default, that of the whole data set.

    Returns:
        Number of images in each list, by name of the list.

    Raises:
        FileNotFoundError: If a folder, the list of Cars or an image in it is missing.
        FileExistsError: If there are other lists.
        ValueError: If the number of classes or images is not the expected one.
    """
    pool, root = POOLS[name], Path(root)
    entries = find_entries(pool, root, pool.num_images if num_images is None else num_images)
    parts = split_pool(entries, seed)
    texts = {
        root / 'meta' / f'pooled_{split}.txt': ''.join(f'{image} {label}\n' for image, label in part)
        for split, part in parts.items()
    }
    if other := [str(path) for path, text in texts.items() if path.is_file() and path.read_text() != text]:
        raise FileExistsError(f'there are other lists, which are not overwritten: remove {", ".join(other)}')
    (root / 'meta').mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text)
    return {f'pooled_{split}': len(part) for split, part in parts.items()}


def find_entries(pool: Pool, root: Path, num_images: int) -> list[Entry]:
    """File name and label of every image in the order of ``ImageFolder``: sorted classes, then sorted file names."""
    folder, again = root / pool.folder, f'unpack {pool.archives} in {root.absolute()}'
    if not folder.is_dir():
        raise FileNotFoundError(f'no such folder: {folder.absolute()}; {again}')
    pairs = sorted(pool.find(root, folder))
    labels = {key: label for label, key in enumerate(sorted({key for key, _ in pairs}))}
    if len(labels) != pool.num_classes:
        raise ValueError(f'{folder.absolute()} has images of {len(labels)} classes, not of {pool.num_classes}: {again}')
    if len(pairs) != num_images:
        raise ValueError(
            f'{folder.absolute()} has {len(pairs)} images instead of {num_images}: {again}, or add '
            f'--images {len(pairs)} to split these'
        )
    if missing := [image for _, image in pairs if not (folder / image).is_file()]:
        raise FileNotFoundError(f'{folder.absolute()} lacks {len(missing)} images, such as {missing[0]}: {again}')
    return [(image, labels[key]) for key, image in pairs]


def split_pool(entries: Sequence[Entry], seed: int) -> dict[str, list[Entry]]:
    """Shuffled parts of 70, 15 and 15 %, rounded down; the remaining images are in no part."""
    order = np.random.RandomState(seed).permutation(len(entries))
    sizes = [int(len(entries) * share) for share in SHARES.values()]
    parts = np.split(order, np.cumsum(sizes))
    return {split: [entries[i] for i in part] for split, part in zip(SHARES, parts[:-1], strict=True)}


# --- classes of the data sets ---


def find_by_folder(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is its folder."""
    classes = [path for path in folder.iterdir() if path.is_dir()]
    return [(path.name, f'{path.name}/{image.name}') for path in classes for image in files_in(path, *EXTENSIONS)]


def find_by_name(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is its file name up to the last underscore."""
    return [(image.name.rpartition('_')[0], image.name) for image in files_in(folder, *EXTENSIONS)]


def find_by_list(root: Path, folder: Path) -> list[tuple[Class, str]]:
    """The class of an image is a number in ``cars_annos.mat``, which lies beside ``car_ims.tgz``."""
    from scipy.io import loadmat

    with open(root / 'cars_annos.mat', 'rb') as file:
        annotations = loadmat(file, squeeze_me=True)['annotations']
    pairs = zip(annotations['class'], annotations['relative_im_path'], strict=True)
    return [(int(number), Path(image).name) for number, image in pairs]


POOLS = {
    'pets': Pool('images.tar.gz of https://www.robots.ox.ac.uk/~vgg/data/pets', 'images', find_by_name, 37, 7390),
    'caltech101': Pool(
        '101_ObjectCategories.tar.gz of https://data.caltech.edu/records/mzrjq-6wc02',
        '101_ObjectCategories',
        find_by_folder,
        102,
        9144,
    ),
    'cars': Pool(
        'car_ims.tgz (all images in one folder) of https://ai.stanford.edu/~jkrause/cars/car_dataset.html',
        'car_ims',
        find_by_list,
        196,
        16185,
    ),
    'dogs': Pool(
        'images.tar of http://vision.stanford.edu/aditya86/ImageNetDogs', 'Images', find_by_folder, 120, 20580
    ),
}
