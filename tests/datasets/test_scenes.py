"""Scenes of digits and garments: what is drawn, what is written, and what becomes of folders that exist."""

import json
import struct

import cv2
import numpy as np
import pytest
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO

from vitplug.datasets import digit_scenes as digits
from vitplug.datasets import garment_scenes as garments
from vitplug.datasets import scenes as composer

COUNTS = dict(imagenet=(40, 20), ade=(12, 6), coco=(12, 6))


def tree(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob('*')) if p.is_file()}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A finished data set that no test changes."""
    return digits.make_digit_scenes(tmp_path_factory.mktemp('made') / 'digits', 3, COUNTS)


@pytest.fixture(scope='module')
def source():
    return digits.digits(3)


# --- drawing ---


def test_split_uses_every_scan_once_and_a_fifth_of_each_digit_for_validation():
    labels = np.random.default_rng(0).integers(0, 10, 1797)
    split = digits.split_scans(labels, seed=5)
    used = np.concatenate([*split['train'], *split['val']])
    assert sorted(used) == list(range(1797))
    for digit in range(10):
        assert (labels[split['train'][digit]] == digit).all() and (labels[split['val'][digit]] == digit).all()
        assert len(split['val'][digit]) / (labels == digit).sum() == pytest.approx(0.2, abs=0.01)


# Labels, scans and pixels of each mask, and the mean of the image.
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
def test_drawn_scenes_do_not_change(place):
    """Published accuracies belong to these pictures."""
    labels, scans, areas, mean = DRAWN[place]
    scene = composer.draw_scene(digits.digits(0), 0, *place)
    assert (scene.labels.tolist(), scene.scan_ids.tolist()) == (labels, scans)
    # OpenCV's versions round differently.
    assert scene.masks.sum(axis=(1, 2)) == pytest.approx(areas, abs=3)
    assert scene.image.mean() == pytest.approx(mean, abs=0.2)


# --- files ---


def test_ade_layout(made, source):
    seen = set()
    for split, folder, count in (('train', 'training', 12), ('val', 'validation', 6)):
        images, maps = (sorted((made / 'ade' / kind / folder).iterdir()) for kind in ('images', 'annotations'))
        assert [p.name for p in images] == [p.name for p in maps] and len(images) == count
        for index, (image, seg) in enumerate(zip(images, maps, strict=True)):
            scene = composer.draw_scene(source, 3, 'ade', split, index)
            assert (cv2.imread(str(image))[..., ::-1] == scene.image).all()
            seg = cv2.imread(str(seg), cv2.IMREAD_UNCHANGED)
            for mask, label in zip(scene.masks, scene.labels, strict=True):
                assert (seg[mask] == label + 1).all()
            assert (seg[~scene.masks.any(axis=0)] == 0).all()
            seen |= set(np.unique(seg).tolist())
    assert seen == set(range(11))


@pytest.mark.parametrize('split, count', [('train', 12), ('val', 6)])
def test_coco_layout(made, source, split, count):
    coco = COCO(str(made / f'coco/annotations/instances_{split}.json'))
    assert [coco.cats[i]['name'] for i in range(1, 11)] == list(digits.CLASSES)
    assert len(coco.imgs) == count == len(list((made / 'coco' / split).iterdir()))
    for image_id, image in coco.imgs.items():
        picture = cv2.imread(str(made / 'coco' / split / image['file_name']))
        assert picture.shape[:2] == (image['height'], image['width'])
        scene = composer.draw_scene(source, 3, 'coco', split, image_id - 1)
        annotations = coco.imgToAnns[image_id]
        assert [a['category_id'] - 1 for a in annotations] == scene.labels.tolist()
        for annotation, mask in zip(annotations, scene.masks, strict=True):
            assert (coco.annToMask(annotation).astype(bool) == mask).all()
            rle = coco.annToRLE(annotation)
            assert mask_utils.area(rle) == annotation['area'] > 0
            assert mask_utils.toBbox(rle).tolist() == annotation['bbox']
    assert sorted(coco.anns) == list(range(1, len(coco.anns) + 1))  # pycocotools never matches the id 0


def test_a_complete_folder_is_kept_and_any_other_refused(made, tmp_path, capsys):
    before = tree(made)
    digits.make_digit_scenes(made, 3, COUNTS)
    assert 'complete already' in capsys.readouterr().out
    (tmp_path / 'mine').write_text('precious')
    for root, seed in ((made, 4), (tmp_path, 3)):
        with pytest.raises(FileExistsError, match='has files: choose another folder, or remove it'):
            digits.make_digit_scenes(root, seed, COUNTS)
    assert tree(made) == before and [path.name for path in tmp_path.iterdir()] == ['mine']


# --- garments ---


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
def fashion(tmp_path_factory):
    """Fashion-MNIST's four files, with few photographs."""
    folder = tmp_path_factory.mktemp('fashion')
    rng = np.random.default_rng(0)
    for part, count in dict(train=40, t10k=20).items():
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.stack([photograph(int(label), rng) for label in labels])
        for kind, array in (('images-idx3', images), ('labels-idx1', labels)):
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(f'>{array.ndim}I', *array.shape)
            (folder / f'{part}-{kind}-ubyte').write_bytes(header + array.tobytes())
    return folder


@pytest.mark.parametrize('size', [(28, 28), (33, 40)])
@pytest.mark.parametrize('label', [0, 9])
def test_garment_fills_its_box_without_holes(label, size):
    photo = photograph(label, np.random.default_rng(2))
    inside = garments.silhouette(photo)
    height, width = (np.ptp(np.flatnonzero(inside.any(axis))) + 1 for axis in (1, 0))
    assert inside.sum() == height * width and photo[~inside].max() < 3
    opacity, shade = garments.render_garment(photo, *size)
    found = [np.ptp(np.flatnonzero((opacity >= 0.5).any(axis))) + 1 for axis in (1, 0)]
    longer = max(height, width)
    assert found == pytest.approx([size[0] * height / longer, size[1] * width / longer], abs=1.5)
    assert shade.min() >= garments.DARKEST and shade.max() == pytest.approx(1)


def test_garments_of_training_and_validation_differ(fashion, tmp_path):
    source = garments.garments(fashion)
    made = composer.make_scenes(tmp_path / 'made', source, 0, dict(ade=(6, 3), coco=(6, 3)))
    images = {split: {photo.tobytes() for photo in scans} for split, (scans, _) in source.pools.items()}
    assert [len(scans) for scans, _ in source.pools.values()] == [40, 20] and not images['train'] & images['val']
    table = json.loads((made / 'coco/annotations/instances_val.json').read_text())
    assert [category['name'] for category in table['categories']] == [*garments.CLASSES]
    assert len(list((made / 'ade/images/training').iterdir())) == 6
    scene = composer.draw_scene(source, 0, 'coco', 'val', 0)
    assert (cv2.imread(str(made / 'coco/val/val_000000.png'))[..., ::-1] == scene.image).all()
    assert (scene.scan_ids % 10 == scene.labels).all()
