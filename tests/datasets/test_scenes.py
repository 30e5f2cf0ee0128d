"""Scenes of digits: what is drawn, what is written, and what becomes of folders that exist."""

import cv2
import numpy as np
import pytest
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO

from vitplug.datasets import digit_scenes as digits

COUNTS = dict(imagenet=(40, 20), ade=(12, 6), coco=(12, 6))


def tree(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob('*')) if p.is_file()}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A finished data set that no test changes."""
    return digits.make_digit_scenes(tmp_path_factory.mktemp('made') / 'digits', 3, COUNTS)


# --- drawing ---


def test_split_uses_every_scan_once_and_a_fifth_of_each_digit_for_validation():
    _, labels = digits.load_scans()
    split = digits.split_scans(seed=5)
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
    image, objects = digits.draw_scene(0, *place)
    assert [placed[:2] for placed in objects] == list(zip(labels, scans, strict=True))
    # OpenCV's versions round differently.
    assert digits.visible_masks(objects, image.shape[:2]).sum(axis=(1, 2)) == pytest.approx(areas, abs=3)
    assert image.mean() == pytest.approx(mean, abs=0.2)


# --- files ---


def test_ade_layout(made):
    seen = set()
    for split, folder, count in (('train', 'training', 12), ('val', 'validation', 6)):
        images, maps = (sorted((made / 'ade' / kind / folder).iterdir()) for kind in ('images', 'annotations'))
        assert [p.name for p in images] == [p.name for p in maps] and len(images) == count
        for index, (image, seg) in enumerate(zip(images, maps, strict=True)):
            drawn, objects = digits.draw_scene(3, 'ade', split, index)
            assert (cv2.imread(str(image))[..., ::-1] == drawn).all()
            seg = cv2.imread(str(seg), cv2.IMREAD_UNCHANGED)
            masks = digits.visible_masks(objects, seg.shape)
            for mask, placed in zip(masks, objects, strict=True):
                assert (seg[mask] == placed.label + 1).all()
            assert (seg[~masks.any(axis=0)] == 0).all()
            seen |= set(np.unique(seg).tolist())
    assert seen == set(range(11))


@pytest.mark.parametrize('split, count', [('train', 12), ('val', 6)])
def test_coco_layout(made, split, count):
    coco = COCO(str(made / f'coco/annotations/instances_{split}.json'))
    assert [coco.cats[i]['name'] for i in range(1, 11)] == list(digits.CLASSES)
    assert len(coco.imgs) == count == len(list((made / 'coco' / split).iterdir()))
    for image_id, image in coco.imgs.items():
        picture = cv2.imread(str(made / 'coco' / split / image['file_name']))
        assert picture.shape[:2] == (image['height'], image['width'])
        _, objects = digits.draw_scene(3, 'coco', split, image_id - 1)
        annotations = coco.imgToAnns[image_id]
        assert [(a['category_id'] - 1, a['scan_id']) for a in annotations] == [placed[:2] for placed in objects]
        for annotation, mask in zip(annotations, digits.visible_masks(objects, picture.shape[:2]), strict=True):
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
