"""Fashion-MNIST's files and the scenes of garments, on photographs made here: the data itself is in no repository."""

import gzip
import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO

from vitplug.datasets import digit_scenes, fashion_mnist, garment_scenes, scenes
from vitplug.datasets.fashion_mnist import CLASSES, load_split, read_idx, unpack
from vitplug.datasets.garment_scenes import DARKEST, make_garment_scenes, render_garment, silhouette

REPO = Path(__file__).parents[2]
TOOLS = REPO / 'tools' / 'dataset_converters'
COUNTS = dict(train=40, t10k=20)


def idx(array: np.ndarray) -> bytes:
    """A file in the IDX format."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f'>{array.ndim}I', *array.shape) + array.tobytes()


def photograph(label: int, rng: np.random.Generator) -> np.ndarray:
    """A rectangle of random size with a stripe and a hole, noise outside of it; taller for higher classes."""
    photo = rng.integers(0, 3, (28, 28)).astype(np.uint8)
    height, width = 8 + 2 * label, int(rng.integers(8, 20))
    top, left = (28 - height) // 2, (28 - width) // 2
    photo[top : top + height, left : left + width] = rng.integers(60, 200)
    photo[top + 2 : top + 4, left : left + width] = 250
    photo[top + 5, left + 4] = 0
    return photo


@pytest.fixture(scope='module')
def packed(tmp_path_factory):
    """The four files, packed, with few photographs; photographs of the two parts differ."""
    folder = tmp_path_factory.mktemp('packed')
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.stack([photograph(int(label), rng) for label in labels])
        for kind, array in (('images-idx3', images), ('labels-idx1', labels)):
            (folder / f'{part}-{kind}-ubyte.gz').write_bytes(gzip.compress(idx(array)))
    return folder


@pytest.fixture(autouse=True)
def published(packed, monkeypatch):
    """Lets these files pass for the published ones."""
    files = {}
    for name in fashion_mnist.FILES:
        data = gzip.decompress((packed / f'{name}.gz').read_bytes())
        files[name] = (read_idx(data, name).shape, hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(fashion_mnist, 'FILES', files)


@pytest.fixture
def made(packed, tmp_path):
    return make_garment_scenes(tmp_path / 'garments', packed, num_scenes=(6, 3), log=lambda line: None)


# --- the files ---


def test_idx_is_an_array():
    array = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(read_idx(idx(array), 'a'), array)


@pytest.mark.parametrize(
    ('data', 'said'),
    [
        (b'', 'is no IDX file'),
        (b'\0\0\x0d\1\0\0\0\0', 'is no IDX file of unsigned bytes'),
        (b'\0\0\x08\3\0\0\0\1', 'ends in its header'),
        (idx(np.zeros(5, np.uint8))[:-1], r'has 12 bytes, expected 13 for the shape \(5,\)'),
        (idx(np.zeros(5, np.uint8)) + b'\0', 'has 14 bytes, expected 13'),
    ],
)
def test_damaged_idx_is_named(data, said):
    with pytest.raises(ValueError, match=f'^name: {said}'):
        read_idx(data, 'name')


def test_packed_and_unpacked_files_are_the_same(packed, tmp_path):
    lines = []
    unpack(packed, tmp_path / 'data', lines.append)
    assert sorted(path.name for path in (tmp_path / 'data').iterdir()) == sorted(fashion_mnist.FILES)
    for split, count in (('train', 40), ('val', 20)):
        images, labels = load_split(packed, split)
        assert images.shape == (count, 28, 28) and labels.tolist() == [i % 10 for i in range(count)]
        assert all(map(np.array_equal, load_split(tmp_path / 'data', split), (images, labels)))
    assert len(lines) == 4
    unpack(packed, tmp_path / 'data', lines.append)
    assert all(line.endswith('is complete already') for line in lines[4:]) and len(lines) == 8


def test_mmpretrain_reads_the_unpacked_files(packed, tmp_path):
    from mmpretrain.datasets import FashionMNIST

    unpack(packed, tmp_path, lambda line: None)
    for split, count in (('train', 40), ('test', 20)):
        theirs = FashionMNIST(str(tmp_path), split=split, test_mode=split == 'test', download=False, pipeline=[])
        images, labels = load_split(tmp_path, 'train' if split == 'train' else 'val')
        assert len(theirs) == count
        assert all(np.array_equal(theirs[i]['img'], images[i]) for i in range(count))
        assert [int(theirs[i]['gt_label']) for i in range(count)] == labels.tolist()
    assert tuple(theirs.CLASSES) == CLASSES


def test_other_files_are_refused(packed, tmp_path):
    for path in packed.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    name = 't10k-labels-idx1-ubyte.gz'
    (tmp_path / name).write_bytes(gzip.compress(idx(np.ones(20, np.uint8))))
    with pytest.raises(
        ValueError, match=rf'{name}: unpacked, it has the SHA-256 \w+, expected \w+: get the file again'
    ):
        unpack(tmp_path, tmp_path / 'out')
    (tmp_path / name).write_bytes((packed / name).read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf'{name}: cannot be unpacked'):
        unpack(tmp_path, tmp_path / 'out')
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf'no {name} in .*apt-get install dataset-fashion-mnist'):
        unpack(tmp_path, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    with pytest.raises(FileNotFoundError, match=r'no t10k-labels-idx1-ubyte\.gz, nor t10k-labels-idx1-ubyte, in '):
        load_split(tmp_path, 'val')


def test_users_files_are_kept(packed, tmp_path):
    (tmp_path / 'train-images-idx3-ubyte').write_text('mine')
    with pytest.raises(FileExistsError, match='exists with another content and is not overwritten'):
        unpack(packed, tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ['mine']


# --- one garment ---


def test_silhouette_has_no_holes_and_no_noise():
    photo = photograph(5, np.random.default_rng(1))
    inside = silhouette(photo)
    rows, cols = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    assert inside.sum() == len(rows) * len(cols) == (np.ptp(rows) + 1) * (np.ptp(cols) + 1)
    assert (photo[inside] == 0).sum() == 1 and photo[~inside].max() < 3


@pytest.mark.parametrize('size', [(28, 28), (56, 50), (33, 40)])
@pytest.mark.parametrize('label', [0, 9])
def test_garment_fills_its_box(label, size):
    """The longer side fills the box; proportions are kept but for the box's own."""
    photo = photograph(label, np.random.default_rng(2))
    rows, cols = (np.flatnonzero(silhouette(photo).any(axis)) for axis in (1, 0))
    height, width = np.ptp(rows) + 1, np.ptp(cols) + 1
    longer = max(height, width)
    opacity, shade = render_garment(photo, *size)
    assert opacity.shape == shade.shape
    inside = opacity >= 0.5
    found = np.ptp(np.flatnonzero(inside.any(1))) + 1, np.ptp(np.flatnonzero(inside.any(0))) + 1
    assert found == pytest.approx((size[0] * height / longer, size[1] * width / longer), abs=1.5)
    assert opacity.min() >= 0 and opacity.max() == 1 and opacity[inside].size / opacity.size > 0.8


def test_photograph_is_seen_in_the_shade():
    photo = photograph(9, np.random.default_rng(3))
    _, shade = render_garment(photo, 56, 56)
    assert shade.min() >= DARKEST and shade.max() == pytest.approx(1)
    # The stripe is the brightest part, near the top.
    brightest = np.argmax(shade.mean(axis=1)) / len(shade)
    assert 0.05 < brightest < 0.2
    plain = photo[20, 14] / photo.max()
    assert np.median(shade) == pytest.approx(DARKEST + (1 - DARKEST) * plain, abs=0.01)


# --- scenes ---


def test_layouts(made):
    files = [path.relative_to(made).as_posix() for path in made.rglob('*') if path.is_file()]
    counts = {
        'ade/images/training': 6,
        'ade/images/validation': 3,
        'ade/annotations/training': 6,
        'ade/annotations/validation': 3,
        'coco/train': 6,
        'coco/val': 3,
        'coco/annotations': 2,
    }
    assert {folder: sum(name.startswith(f'{folder}/') for name in files) for folder in counts} == counts
    assert len(files) == sum(counts.values()) + 1
    manifest = json.loads((made / 'manifest.json').read_text())
    assert manifest['format'] == 'vitplug-garment-scenes'
    assert manifest['arguments'] == dict(seed=0, num_scenes=[6, 3])


def test_scenes_agree_with_their_annotations(made, packed):
    pools = garment_scenes.load_pools(packed, 0)
    coco = COCO(str(made / 'coco/annotations/instances_val.json'))
    assert [coco.cats[i + 1]['name'] for i in range(10)] == [*CLASSES]
    assert {cat['supercategory'] for cat in coco.cats.values()} == {'garment'}
    for image_id, image in coco.imgs.items():
        scene = scenes.draw_scene(pools, 0, 'coco', 'val', image_id - 1)
        picture = cv2.imread(str(made / 'coco' / 'val' / image['file_name']))[..., ::-1]
        assert np.array_equal(picture, scene.image)
        for annotation, mask in zip(coco.imgToAnns[image_id], scene.masks, strict=True):
            assert np.array_equal(coco.annToMask(annotation).astype(bool), mask)
    scene = scenes.draw_scene(pools, 0, 'ade', 'train', 0)
    labels = cv2.imread(str(made / 'ade/annotations/training/train_000000.png'), cv2.IMREAD_UNCHANGED)
    for mask, label, scan in zip(scene.masks, scene.labels, scene.scan_ids, strict=True):
        assert (labels[mask] == label + 1).all() and scan % 10 == label
    assert (labels[~scene.masks.any(axis=0)] == 0).all()


def test_training_and_validation_show_different_photographs(packed):
    pools = garment_scenes.load_pools(packed, 0)
    images = {split: {photo.tobytes() for photo in pool.images} for split, pool in pools.items()}
    assert [len(pools[split].images) for split in ('train', 'val')] == [40, 20]
    assert not images['train'] & images['val']


def test_garments_stand_out_from_the_background(packed):
    pools = garment_scenes.load_pools(packed, 0)
    for index in range(10):
        scene = scenes.draw_scene(pools, 0, 'coco', 'train', index)
        luminance = scene.image @ scenes.LUMINANCE
        outside = np.median(luminance[~scene.masks.any(axis=0)])
        assert all(np.median(luminance[mask]) > outside for mask in scene.masks)


def test_same_arguments_give_the_same_bytes_and_others_need_overwrite(made, packed, tmp_path):
    make = make_garment_scenes(tmp_path / 'again', packed, num_scenes=(6, 3), log=lambda line: None)
    for path in made.rglob('*.*'):
        assert (make / path.relative_to(made)).read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match='made with other arguments'):
        make_garment_scenes(made, packed, num_scenes=(5, 3))
    make_garment_scenes(made, packed, num_scenes=(5, 3), overwrite=True, log=lambda line: None)
    assert len([*(made / 'coco/train').iterdir()]) == 5


def test_digits_and_garments_do_not_replace_each_other(made, packed):
    with pytest.raises(ValueError, match=r'it holds manifest.json, which this converter did not write'):
        digit_scenes.make_digit_scenes(made, overwrite=True)


@pytest.mark.parametrize(
    ('settings', 'said'), [(dict(seed=-1), 'seed = -1'), (dict(num_scenes=(0, 1)), r'num_scenes \(train\) = 0')]
)
def test_wrong_arguments_are_refused(packed, tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        make_garment_scenes(tmp_path / 'new', packed, **settings)
    assert not (tmp_path / 'new').exists()


# What the composer drew for digits before it could draw garments: labels, scans and pixels of each mask.
DRAWN = {
    ('ade', 'train', 0): (
        [8, 6, 3, 5, 3, 9, 2],
        [1154, 1239, 1605, 401, 1513, 585, 573],
        [440, 881, 380, 422, 269, 572, 357],
        96.37,
    ),
    ('coco', 'val', 2): ([3, 8, 0, 9, 9], [1729, 1409, 1413, 1048, 1616], [286, 490, 353, 251, 246], 99.86),
    ('imagenet', 'train', 7): ([7], [1113], [352], 109.34),
}


@pytest.mark.parametrize('place', DRAWN, ids=lambda place: place[0])
def test_digits_are_drawn_as_before(place):
    labels, scans, areas, mean = DRAWN[place]
    scene = scenes.draw_scene(digit_scenes.load_pools(0), 0, *place)
    assert (scene.labels.tolist(), scene.scan_ids.tolist()) == (labels, scans)
    # OpenCV's versions round differently.
    assert scene.masks.sum(axis=(1, 2)) == pytest.approx(areas, abs=3)
    assert scene.image.mean() == pytest.approx(mean, abs=0.2)


# --- the commands ---


@pytest.mark.integration
@pytest.mark.parametrize('tool', ['fashion_mnist.py --source', 'make_garment_scenes.py --fashion-mnist'])
def test_command_says_how_to_get_the_files(tool, tmp_path):
    name, option = tool.split()
    command = [sys.executable, str(TOOLS / name), option, str(tmp_path), '--out', str(tmp_path / 'new')]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, env={'PYTHONPATH': str(REPO)})
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert 'error: no t' in done.stderr and 'apt-get install dataset-fashion-mnist' in done.stderr
    assert not (tmp_path / 'new').exists()
