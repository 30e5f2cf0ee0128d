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

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vitplug.files.folders import names_in

SHARES = {'train': 0.7, 'val': 0.15, 'test': 0.15}
EXTENSIONS = ('.jpg', '.jpeg', '.png')


def by_folder(folder: Path, images: list[str]) -> list[str]:
    """The class of an image is its folder."""
    return [image.rpartition('/')[0] for image in images]


def by_name(folder: Path, images: list[str]) -> list[str]:
    """The class of an image is its file name up to the last underscore."""
    return [image.rpartition('_')[0] for image in images]


def by_list(folder: Path, images: list[str]) -> list[int]:
    """The class of an image is a number in ``cars_annos.mat`` beside the folder."""
    from scipy.io import loadmat

    with open(folder.with_name('cars_annos.mat'), 'rb') as file:
        annotations = loadmat(file, squeeze_me=True)['annotations']
    labels = {Path(path).name: int(number) for path, number in annotations[['relative_im_path', 'class']].tolist()}
    return [labels[image] for image in images]


class Pool(NamedTuple):
    """A data set with pooled images."""

    archive: str  # to unpack into the root folder
    folder: str  # folder of the images in the root
    classes: Callable[[Path, list[str]], Sequence]  # of the images of the folder
    num_images: int


# Their sources are in configs/gaussian_bias/README.md.
POOLS = {
    'pets': Pool('images.tar.gz', 'images', by_name, 7390),
    'caltech101': Pool('101_ObjectCategories.tar.gz', '101_ObjectCategories', by_folder, 9144),
    'cars': Pool('car_ims.tgz (all images in one folder)', 'car_ims', by_list, 16185),
    'dogs': Pool('images.tar', 'Images', by_folder, 20580),
}


def write_pooled_lists(name: str, root: str | Path) -> dict[str, int]:
    """Writes the lists of an unpacked data set; gives the number of images in each, by its name.

    Args:
        name: One of :data:`POOLS`.
        root: Folder with the unpacked archives.

    Raises:
        ValueError: If there are more or fewer images than the data set has.
        FileNotFoundError: If the list of Cars is missing.
    """
    pool, meta = POOLS[name], Path(root) / 'meta'
    folder = Path(root, pool.folder).absolute()
    images = names_in(folder, EXTENSIONS)
    if len(images) != pool.num_images:
        raise ValueError(
            f'{folder} has {len(images)} images instead of {pool.num_images}: unpack {pool.archive} in {root}'
        )
    # The order of ImageFolder: sorted classes, then sorted file names.
    _, labels = np.unique(pool.classes(folder, images), return_inverse=True)
    parts = split_pool(sorted(zip(labels, images, strict=True)))
    meta.mkdir(exist_ok=True)
    for split, part in parts.items():
        (meta / f'pooled_{split}.txt').write_text(''.join(f'{image} {label}\n' for label, image in part))
    return {f'pooled_{split}': len(part) for split, part in parts.items()}


def split_pool(entries: Sequence) -> dict[str, list]:
    """Parts of 70, 15 and 15 %, shuffled by the paper's seed and rounded down; the remaining images are in no part."""
    order = np.random.RandomState(0).permutation(len(entries))
    sizes = [int(len(entries) * share) for share in SHARES.values()]
    parts = np.split(order, np.cumsum(sizes))
    return {split: [entries[i] for i in part] for split, part in zip(SHARES, parts[:-1], strict=True)}
