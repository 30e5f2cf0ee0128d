"""Tests of the digit scenes: what is drawn, what is written, and what becomes of folders in any state."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO

from vitplug.datasets import digit_scenes as ds
from vitplug.datasets import scenes as composer

REPO = Path(__file__).parents[2]
CLI = REPO / 'tools' / 'dataset_converters' / 'make_digit_scenes.py'
ARGS = dict(seed=3, num_classification=(40, 20), num_scenes=(12, 6))
CLI_ARGS = ['--seed', '3', '--num-cls-train', '40', '--num-cls-val', '20', '--num-train', '12', '--num-val', '6']


def tree(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob('*')) if p.is_file()}


def manifest_of(root):
    return json.loads((root / 'manifest.json').read_text())


def make(root, **changes):
    """Make the small data set and return the lines it logged."""
    lines = []
    ds.make_digit_scenes(root, **{**ARGS, **changes}, log=lines.append)
    return '\n'.join(lines)


def is_complete(root, **changes):
    return composer.has_scenes(root, ds.DIGITS, ds._request(**{**ARGS, **changes}))


def run_cli(*args):
    env = {**os.environ, 'PYTHONPATH': str(REPO)}
    return subprocess.run([sys.executable, str(CLI), *map(str, args)], env=env, capture_output=True, text=True)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A finished data set that no test changes."""
    root = tmp_path_factory.mktemp('made') / 'digits'
    make(root)
    return root


@pytest.fixture
def copy(made, tmp_path):
    """A finished data set to be changed."""
    return Path(shutil.copytree(made, tmp_path / 'digits'))


@pytest.fixture(scope='module')
def pools():
    return ds.load_pools(3)


@pytest.fixture(scope='module')
def scenes(pools):
    return [composer.draw_scene(pools, 3, 'coco', 'train', index) for index in range(60)]


# --- split ---


def test_split_uses_every_scan_once_and_a_fifth_of_each_digit_for_validation(pools):
    labels = np.random.default_rng(0).integers(0, 10, 1797)
    split = ds.split_scans(labels, seed=5)
    used = np.concatenate([*split['train'], *split['val']])
    assert sorted(used) == list(range(1797))
    for digit in range(10):
        assert (labels[split['train'][digit]] == digit).all() and (labels[split['val'][digit]] == digit).all()
        share = len(split['val'][digit]) / (labels == digit).sum()
        assert share == pytest.approx(0.2, abs=0.01)
    assert any(a.tolist() != b.tolist() for a, b in zip(split['val'], ds.split_scans(labels, 6)['val'], strict=True))


@pytest.mark.integration
def test_no_validation_scan_is_in_any_training_picture(tmp_path):
    # Enough pictures that nearly every scan is drawn: a leak would not stay hidden by chance.
    root = tmp_path / 'digits'
    make(root, num_classification=(1500, 600), num_scenes=(60, 20))
    used = {'train': set(), 'val': set()}
    for name, entry in manifest_of(root)['files'].items():
        if 'scan_ids' in entry:
            used['train' if '/train' in name else 'val'].update(entry['scan_ids'])
    assert len(used['train']) > 700 and len(used['val']) > 250
    assert not used['train'] & used['val']


def test_manifest_and_annotations_name_the_scans_that_were_drawn(made, pools):
    files = manifest_of(made)['files']
    scan_of = {}
    for a in json.loads((made / 'coco/annotations/instances_val.json').read_text())['annotations']:
        scan_of.setdefault(a['image_id'], []).append(a['scan_id'])
    for index in range(6):
        scene = composer.draw_scene(pools, 3, 'coco', 'val', index)
        name = f'coco/val/val_{index:06d}.png'
        assert (cv2.imread(str(made / name))[..., ::-1] == scene.image).all()
        assert files[name]['scan_ids'] == scene.scan_ids.tolist() == scan_of[index + 1]


# --- drawing ---


def block(height, width, top, left):
    """An opaque rectangle."""
    ones = np.ones((height, width), np.float32)
    return composer._Object(0, 0, ones, ones, top, left)


def test_scenes_vary_in_shape_and_number_of_digits(scenes):
    shapes = np.array([scene.image.shape[:2] for scene in scenes])
    assert shapes.min() >= 96 and shapes.max() <= 160
    assert (shapes[:, 0] > shapes[:, 1]).any() and (shapes[:, 0] < shapes[:, 1]).any()
    assert {len(scene.labels) for scene in scenes} == {3, 4, 5, 6, 7}


def test_masks_are_disjoint_and_in_agreement_with_labels_and_scans(scenes, pools):
    for scene in scenes:
        assert scene.masks.shape == (len(scene.labels), *scene.image.shape[:2])
        assert scene.masks.sum(axis=0).max() == 1
        assert scene.masks.sum(axis=(1, 2)).min() >= 30
        for label, scan_id in zip(scene.labels, scene.scan_ids, strict=True):
            assert scan_id in pools['train'].ids_by_class[label]


def test_masks_show_the_digit(scenes, pools):
    """Shrunk to 8 by 8 pixels, an uncovered digit's mask resembles its scan."""
    resemblances = []
    for mask, scan_id in zip(scenes[0].masks, scenes[0].scan_ids, strict=True):
        scan = pools['train'].images[scan_id] >= 0.5
        rows, cols = np.flatnonzero(scan.any(1)), np.flatnonzero(scan.any(0))
        scan = scan[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1].astype(np.float32)
        ys, xs = np.nonzero(mask)
        small = mask[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1].astype(np.float32)
        small = cv2.resize(small, scan.shape[::-1], interpolation=cv2.INTER_AREA)
        resemblances.append(np.corrcoef(small.ravel(), scan.ravel())[0, 1])
    assert np.mean(resemblances) > 0.7


def test_mask_is_where_the_enlarged_scan_has_half_of_its_intensity(pools):
    scan = pools['train'].images[0]
    enlarged = cv2.resize(np.pad(scan, 1), (50, 40), interpolation=cv2.INTER_CUBIC) >= 0.5
    ink, shade = ds.render_digit(scan, height=32, width=40)
    assert (shade == 1).all() and shade.shape == ink.shape
    mask = composer._Object(0, 0, ink, shade, 3, 4).mask((60, 60))
    rows, cols = (np.flatnonzero(enlarged.any(axis)) for axis in (1, 0))
    top, left = (np.flatnonzero(mask.any(axis))[0] for axis in (1, 0))
    height, width = np.ptp(rows) + 1, np.ptp(cols) + 1
    assert mask.sum() == enlarged.sum()
    assert (mask[top:, left:][:height, :width] == enlarged[rows[0] :, cols[0] :][:height, :width]).all()


def test_digits_stand_out_from_what_is_around_them(scenes):
    for scene in scenes:
        luminance = scene.image @ composer.LUMINANCE
        around = np.median(luminance[~scene.masks.any(axis=0)])
        for mask in scene.masks:
            # Eroded, because the rim of a digit is blended with the background.
            core = cv2.erode(mask.astype(np.uint8), np.ones((3, 3))) > 0
            if core.any():
                assert abs(np.median(luminance[core]) - around) > 40


def test_digits_hardly_cover_each_other(pools):
    rng = np.random.default_rng(0)
    overlaps = []
    for _ in range(40):
        digits = composer._lay_out(pools['train'], rng.integers(0, 10, 7), (96, 96), composer.SEVERAL, rng)
        overlaps += [a.box_overlap(b) for i, a in enumerate(digits) for b in digits[:i]]
        seen = composer.visible_masks(digits, (96, 96)).sum(axis=(1, 2))
        assert all(n >= 0.75 * d.mask((96, 96)).sum() for n, d in zip(seen, digits, strict=True))
    assert 0 < max(overlaps) <= 0.15


def test_later_digits_cover_earlier_ones():
    first, second = (block(4, 4, top, 0) for top in (0, 3))
    masks = composer.visible_masks([first, second], (8, 4))
    assert masks[0].any(axis=1).tolist() == [True] * 3 + [False] * 5
    assert masks[1].any(axis=1).tolist() == [False] * 3 + [True] * 4 + [False]


def test_a_digit_covered_bit_by_bit_counts_as_crowded():
    # Each strip covers 12.5 % of the big digit, which the limit for a pair of boxes allows.
    big = block(16, 16, 20, 0)
    above = block(20, 16, 2, 0)
    below = block(20, 16, 34, 0)
    aside = block(16, 16, 20, 14)
    shape = (60, 40)
    assert not composer._is_crowded([big, above], shape)
    assert not composer._is_crowded([big, above, below], shape)
    assert composer._is_crowded([big, above, below, aside], shape)


@pytest.mark.parametrize('grey', [0, 60, 120])
def test_digits_are_brighter_than_what_is_behind_them(grey):
    patch = np.full((5, 5, 3), grey, np.float32)
    for seed in range(20):
        difference = composer.pick_contrasting_colour(patch, np.random.default_rng(seed)) @ composer.LUMINANCE - grey
        assert difference >= composer.MIN_CONTRAST - 0.01


def test_digits_are_white_where_nothing_stands_out():
    patch = np.full((5, 5, 3), 250, np.float32)
    assert (composer.pick_contrasting_colour(patch, np.random.default_rng(0)) == 255).all()


def test_number_of_images_does_not_change_earlier_ones(made, tmp_path):
    make(tmp_path / 'more', num_classification=(45, 21), num_scenes=(14, 7))
    few, more = tree(made), tree(tmp_path / 'more')
    pictures = [name for name in few if name.endswith('.png')]
    assert len(pictures) == 40 + 20 + 3 * (12 + 6)
    assert all(few[name] == more[name] for name in pictures)


# --- files ---


def test_same_arguments_give_the_same_bytes(made, tmp_path):
    make(tmp_path / 'elsewhere' / 'again')
    assert tree(tmp_path / 'elsewhere' / 'again') == tree(made)


def test_another_seed_gives_other_pictures(made, tmp_path):
    make(tmp_path / 'other', seed=4)
    a, b = tree(made), tree(tmp_path / 'other')
    assert not [name for name in a if name.endswith('.png') and a[name] == b.get(name)]


def test_no_two_pictures_are_equal(made):
    pictures = [data for name, data in tree(made).items() if name.endswith('.png')]
    assert len(set(pictures)) == len(pictures)


def test_imagenet_layout(made, pools):
    for split, count in (('train', 40), ('val', 20)):
        files = sorted((made / 'imagenet' / split).rglob('*.png'))
        assert len(files) == count
        assert {path.parent.name for path in files} == set(ds.CLASSES)
        shapes = np.array([cv2.imread(str(path)).shape for path in files])
        assert shapes[:, :2].min() >= 32 and shapes[:, :2].max() <= 48 and (shapes[:, 2] == 3).all()
        assert (shapes[:, 0] != shapes[:, 1]).any()
        entries = manifest_of(made)['files']
        for path in files:
            (scan_id,) = entries[path.relative_to(made).as_posix()]['scan_ids']
            assert scan_id in pools[split].ids_by_class[int(path.parent.name)]


def test_ade_layout(made, pools):
    seen = set()
    for split, folder, count in (('train', 'training', 12), ('val', 'validation', 6)):
        images = sorted((made / 'ade/images' / folder).iterdir())
        maps = sorted((made / 'ade/annotations' / folder).iterdir())
        assert [p.name for p in images] == [p.name for p in maps] and len(images) == count
        for index, (image, seg) in enumerate(zip(images, maps, strict=True)):
            image, seg = cv2.imread(str(image)), cv2.imread(str(seg), cv2.IMREAD_UNCHANGED)
            assert seg.dtype == np.uint8 and seg.shape == image.shape[:2]
            scene = composer.draw_scene(pools, 3, 'ade', split, index)
            for mask, label in zip(scene.masks, scene.labels, strict=True):
                assert (seg[mask] == label + 1).all()
            assert (seg[~scene.masks.any(axis=0)] == 0).all()
            seen |= set(np.unique(seg).tolist())
    assert seen == set(range(11))


@pytest.mark.parametrize('split, count', [('train', 12), ('val', 6)])
def test_coco_layout(made, pools, split, count):
    coco = COCO(str(made / f'coco/annotations/instances_{split}.json'))
    coco.info()
    assert [coco.cats[i]['name'] for i in range(1, 11)] == list(ds.CLASSES)
    assert {cat['supercategory'] for cat in coco.cats.values()} == {'digit'}
    assert len(coco.imgs) == count == len(list((made / 'coco' / split).iterdir()))
    for image_id, image in coco.imgs.items():
        picture = cv2.imread(str(made / 'coco' / split / image['file_name']))
        assert picture.shape[:2] == (image['height'], image['width'])
        scene = composer.draw_scene(pools, 3, 'coco', split, image_id - 1)
        annotations = coco.imgToAnns[image_id]
        assert [a['category_id'] - 1 for a in annotations] == scene.labels.tolist()
        for annotation, mask in zip(annotations, scene.masks, strict=True):
            assert (coco.annToMask(annotation).astype(bool) == mask).all()
            rle = coco.annToRLE(annotation)
            assert mask_utils.area(rle) == annotation['area'] > 0
            assert mask_utils.toBbox(rle).tolist() == annotation['bbox']
            assert annotation['iscrowd'] == 0
    ids = [a['id'] for a in coco.dataset['annotations']]
    assert len(set(ids)) == len(ids) and min(ids) == 1


@settings(max_examples=100, deadline=None)
@given(npst.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_rle_is_what_pycocotools_reads(mask):
    code = composer.encode_rle(mask)
    assert (mask_utils.decode(mask_utils.frPyObjects(code, *mask.shape)).astype(bool) == mask).all()


# --- folders ---


def test_complete_folder_is_left_alone(copy):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob('*')}
    assert is_complete(copy)
    assert 'complete already' in make(copy)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob('*')} == before


def test_is_complete_depends_on_every_argument(copy, tmp_path):
    assert not is_complete(tmp_path / 'nothing')
    for change in ({'seed': 4}, {'num_classification': (40, 21)}, {'num_scenes': (11, 6)}):
        assert not is_complete(copy, **change)


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    'name, damage',
    [
        ('coco/annotations/instances_val.json', cut),
        ('ade/annotations/training/train_000003.png', cut),
        ('imagenet/val/7/val_000007.png', Path.unlink),
        ('coco/train', shutil.rmtree),
    ],
)
def test_damaged_folder_is_made_again(made, copy, name, damage):
    damage(copy / name)
    assert not is_complete(copy)
    assert 'replacing' in make(copy)
    assert tree(copy) == tree(made)
    assert tree(copy) == tree(made)


@pytest.mark.parametrize('at', ['imagenet/val/3', 'coco/annotations/instances_train', 'manifest.json'])
def test_failure_while_writing_leaves_nothing_that_passes_for_complete(made, tmp_path, monkeypatch, at):
    root, write = tmp_path / 'digits', composer._write_bytes

    def fail(path, data):
        if at in path.as_posix():
            write(path, data[: len(data) // 2])
            raise OSError('no space left on device')
        write(path, data)

    monkeypatch.setattr(composer, '_write_bytes', fail)
    with pytest.raises(OSError, match='no space'):
        make(root)
    assert not root.exists() and not is_complete(root)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    make(root)
    assert tree(root) == tree(made)


def test_failure_while_overwriting_keeps_what_was_there(made, copy, monkeypatch):
    monkeypatch.setattr(composer, '_encode_json', lambda value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ds.make_digit_scenes(copy, **{**ARGS, 'num_scenes': (2, 1)}, overwrite=True, log=lambda line: None)
    assert tree(copy) == tree(made)


@pytest.mark.parametrize(
    'name, content',
    [
        ('notes.txt', 'mine'),
        ('imagenet/train/3/cat.png', 'mine'),
        ('coco/annotations/instances_train_mine.json', '{}'),
        ('imagenet/train/3/val_000001.png', 'mine'),
        ('manifest.json', '{"name": "an app"}'),
    ],
)
def test_foreign_folder_is_refused_and_kept(tmp_path, name, content):
    root = tmp_path / 'digits'
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
    for overwrite in (False, True):
        with pytest.raises(ValueError, match='root = ') as error:
            make(root, overwrite=overwrite)
        assert str(root) in str(error.value) and name in str(error.value)
        assert 'choose another folder' in str(error.value)
    assert tree(root) == {name: content.encode()}
    assert os.listdir(tmp_path) == ['digits']


def test_own_file_in_a_damaged_folder_is_not_lost(copy):
    (copy / 'coco/train/train_000000.png').unlink()
    for link in ('coco/mine', 'coco/train/train_000099.png'):
        (copy / link).symlink_to(copy.parent)
        with pytest.raises(ValueError, match=link):
            make(copy, overwrite=True)
        (copy / link).unlink()
    make(copy)
    assert is_complete(copy)


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / 'digits').write_text('mine')
    with pytest.raises(ValueError, match='a file is there'):
        make(tmp_path / 'digits', overwrite=True)
    assert (tmp_path / 'digits').read_text() == 'mine'


def test_empty_folder_and_link_to_a_folder_are_filled(made, tmp_path):
    (tmp_path / 'disk' / 'store').mkdir(parents=True)
    (tmp_path / 'digits').symlink_to(tmp_path / 'disk' / 'store')
    make(tmp_path / 'digits')
    assert (tmp_path / 'digits').is_symlink()
    assert tree(tmp_path / 'disk' / 'store') == tree(made)


@pytest.mark.parametrize('damaged', [False, True])
def test_other_arguments_need_overwrite(made, copy, damaged):
    if damaged:
        (copy / 'coco/train/train_000000.png').unlink()
    before = tree(copy)
    with pytest.raises(ValueError, match=r'other arguments.*overwrite'):
        make(copy, num_scenes=(2, 1))
    assert tree(copy) == before
    make(copy, num_scenes=(2, 1), overwrite=True)
    assert is_complete(copy, num_scenes=(2, 1))
    assert len(list((copy / 'coco/train').iterdir())) == 2
    assert [path.name for path in copy.parent.iterdir()] == ['digits']


# --- arguments ---


@pytest.mark.parametrize(
    'argument, value, named, allowed',
    [
        ('seed', -1, -1, '>= 0'),
        ('seed', 1.0, 1.0, 'integer'),
        ('seed', True, True, 'integer'),
        ('seed', '0', '0', 'integer'),
        ('num_classification', (9, 20), 9, '>= 10'),
        ('num_classification', 40, 40, 'pair'),
        ('num_scenes', (0, 1), 0, '>= 1'),
        ('num_scenes', (1, -2), -2, '>= 1'),
        ('num_scenes', (1, 2, 3), (1, 2, 3), 'pair'),
        ('num_scenes', (1, 2.5), 2.5, 'integer'),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, argument, value, named, allowed):
    with pytest.raises(ValueError) as error:
        make(tmp_path / 'digits', **{argument: value})
    message = str(error.value)
    assert message.startswith(argument) and f' = {named!r}: ' in message and allowed in message
    assert not list(tmp_path.iterdir())


def test_numpy_integers_are_integers(copy):
    assert is_complete(copy, seed=np.int64(3))


def test_without_scikit_learn_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn.datasets', None)
    with pytest.raises(ImportError, match='pip install scikit-learn'):
        make(tmp_path / 'digits')
    assert not (tmp_path / 'digits').exists()


@pytest.mark.integration
def test_module_imports_without_openmmlab_and_torch():
    code = (
        'import sys, vitplug.datasets.digit_scenes; '
        'print([m for m in sys.modules if m.split(".")[0] in ("torch", "mmengine", "mmcv", "sklearn")])'
    )
    env = {**os.environ, 'PYTHONPATH': str(REPO)}
    assert subprocess.run([sys.executable, '-c', code], env=env, capture_output=True, text=True).stdout == '[]\n'


# --- command line ---


@pytest.mark.integration
def test_cli_makes_the_data_set(made, tmp_path):
    result = run_cli('--out', tmp_path / 'digits', *CLI_ARGS)
    assert (result.returncode, result.stderr) == (0, '')
    lines = result.stdout.splitlines()
    assert [line.split(' in ')[0] for line in lines[:2]] == ['imagenet/train: 40 images', 'imagenet/val: 20 images']
    assert len(lines) == 7 and str(tmp_path / 'digits') in lines[-1]
    assert tree(tmp_path / 'digits') == tree(made)


@pytest.mark.integration
@pytest.mark.parametrize('args, said', [(['--num-train', '0'], 'num_scenes'), (['--seed', 'x'], '--seed')])
def test_cli_reports_wrong_arguments_in_one_line(tmp_path, args, said):
    result = run_cli('--out', tmp_path / 'digits', *CLI_ARGS, *args)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1] and 'Traceback' not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
def test_cli_overwrites_on_demand(copy):
    refused = run_cli('--out', copy, *CLI_ARGS, '--num-val', '2')
    assert refused.returncode == 2 and '--overwrite' in refused.stderr.splitlines()[-1]
    assert run_cli('--out', copy, *CLI_ARGS, '--num-val', '2', '--overwrite').returncode == 0
    assert is_complete(copy, num_scenes=(12, 2))


@pytest.mark.integration
def test_cli_reports_an_unwritable_folder_in_one_line(tmp_path):
    (tmp_path / 'file').write_text('mine')
    result = run_cli('--out', tmp_path / 'file' / 'digits', *CLI_ARGS)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and 'error' in result.stderr
