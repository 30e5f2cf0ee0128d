"""The pooled lists of four data sets: found, checked, cut as the paper's script cuts them, and read by mmpretrain."""

from pathlib import Path

import numpy as np
import pytest
from mmpretrain.datasets import CustomDataset
from scipy.io import savemat
from torchvision.datasets import ImageFolder

from vitplug.datasets.pooled_splits import POOLS, split_pool, write_pooled_lists

PARTS = ('train', 'val', 'test')
# Capitals sort before small letters, and 10 before 2, as they do in ImageFolder.
BREEDS = [f'{"Dn"[i % 2]}{20000 + i:08d}-Breed_{i}' for i in range(120)]
CATEGORIES = ['BACKGROUND_Google', 'Faces', *(f'animal_{i}' for i in range(100))]
PETS = [f'{"Ba"[i % 2]}reed_{i}' for i in range(37)]
NUMBERS = (1, 2, 10)


def touch(path):
    """An image, and a hidden file of a file manager beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'x')
    path.with_name(f'._{path.stem}.txt').write_bytes(b'x')


def make_dogs(root):
    for breed in BREEDS:
        for i in NUMBERS:
            touch(root / 'Images' / breed / f'{breed}_{i}.jpg')


def make_caltech101(root):
    for category in CATEGORIES:
        for i in NUMBERS:
            touch(root / '101_ObjectCategories' / category / f'image_{i:04d}.jpg')
    touch(root / '101_ObjectCategories' / 'BACKGROUND_Google' / 'tmp')


def make_pets(root):
    for breed in PETS:
        for i in NUMBERS:
            touch(root / 'images' / f'{breed}_{i}.jpg')
    touch(root / 'images' / f'{PETS[0]}_1.mat')


def make_cars(root):
    """Every third image is of the same class, so that the order of files is not that of classes."""
    annotations = np.zeros(196 * 3, dtype=[('relative_im_path', object), ('class', object), ('test', object)])
    for i in range(len(annotations)):
        annotations[i] = (f'car_ims/{i + 1:06d}.jpg', i % 196 + 1, i % 2)
        touch(root / 'car_ims' / f'{i + 1:06d}.jpg')
    savemat(root / 'cars_annos.mat', {'annotations': annotations})


MAKERS = {'pets': make_pets, 'caltech101': make_caltech101, 'cars': make_cars, 'dogs': make_dogs}
WHOLE = {name: pool.num_images for name, pool in POOLS.items()}
COUNTS = {'pets': 37 * 3, 'caltech101': 102 * 3, 'cars': 196 * 3, 'dogs': 120 * 3}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The data sets have few images here."""
    for name, count in COUNTS.items():
        monkeypatch.setitem(POOLS, name, POOLS[name]._replace(num_images=count))


@pytest.fixture(params=MAKERS)
def data(request, tmp_path):
    """Name and root of a small data set."""
    MAKERS[request.param](tmp_path)
    return request.param, tmp_path


def entries_of(root, part):
    return [line.rsplit(' ', 1) for line in (root / 'meta' / f'pooled_{part}.txt').read_text().splitlines()]


def parts_of(samples):
    """The three parts of the paper's script, by its own steps."""
    count = len(samples)
    train, val, test = int(count * 0.7), int(count * 0.15), int(count * 0.15)
    np.random.seed(0)
    indices = np.arange(0, count)
    np.random.shuffle(indices)
    ends = (train, train + val, train + val + test)
    return [[samples[i] for i in indices[begin:end]] for begin, end in zip((0, *ends), ends, strict=False)]


def test_lists_are_those_of_the_papers_script_on_an_image_folder(data, tmp_path_factory):
    """Pets and Cars are first sorted into a folder for each class."""
    name, root = data
    counts = write_pooled_lists(name, root)
    folder = root / POOLS[name].folder
    if name in ('pets', 'cars'):
        folder = tmp_path_factory.mktemp('folders')
        for image in (root / POOLS[name].folder).glob('*.jpg'):
            key = image.stem.rsplit('_', 1)[0] if name == 'pets' else f'{(int(image.stem) - 1) % 196 + 1:03d}'
            touch(folder / key / image.name)
    # As ImageFolder goes by names only, the files may be empty of pictures.
    samples = [(Path(path), str(label)) for path, label in ImageFolder(str(folder)).samples]
    assert len(samples) == COUNTS[name]
    for part, expected in zip(PARTS, parts_of(samples), strict=True):
        got = [[Path(image).name, label] for image, label in entries_of(root, part)]
        assert got == [[path.name, label] for path, label in expected]
        dataset = CustomDataset(
            data_root=str(root), data_prefix=POOLS[name].folder, ann_file=f'meta/pooled_{part}.txt', pipeline=[]
        )
        assert counts[f'pooled_{part}'] == len(expected) == len(dataset) > 0
        info = dataset.get_data_info(3)
        assert (Path(info['img_path']).name, str(info['gt_label'])) == (got[3][0], got[3][1])
        assert Path(info['img_path']).is_file()


def test_sizes_of_the_whole_data_sets():
    """The paper's script says 9144 and 6400 for Caltech-101; 0.7 * 20580 is a little less than 14406 in floats."""
    sizes = {name: [len(part) for part in split_pool([None] * count).values()] for name, count in WHOLE.items()}
    assert sizes == {
        'pets': [5173, 1108, 1108],
        'caltech101': [6400, 1371, 1371],
        'cars': [11329, 2427, 2427],
        'dogs': [14405, 3087, 3087],
    }


BROKEN = {
    'folder': ('dogs', lambda root: (root / 'Images').rename(root / 'images'), r'Images has 0 images'),
    'image': (
        'dogs',
        lambda root: (root / 'Images' / BREEDS[3] / f'{BREEDS[3]}_1.jpg').unlink(),
        r'359 images instead of 360: unpack images\.tar ',
    ),
    'car': ('cars', lambda root: (root / 'car_ims/000007.jpg').unlink(), r'587 images instead of 588'),
    'list': ('cars', lambda root: (root / 'cars_annos.mat').unlink(), r'cars_annos\.mat'),
}


@pytest.mark.parametrize('case', BROKEN)
def test_damage_is_named_and_nothing_is_written(case, tmp_path):
    name, damage, message = BROKEN[case]
    MAKERS[name](tmp_path)
    damage(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        write_pooled_lists(name, tmp_path)
    assert not (tmp_path / 'meta').exists()
