"""What a sample may be made of, against pycocotools and Pillow; each limit from both sides."""

import os
import socket

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from vitplug.files.folders import files_below
from vitplug.files.limits import _unpacked, check_image_size, check_regular, check_shapes, check_source, coco_complaints

SQUARE = [1, 1, 9, 1, 9, 9, 1, 9]


def info(tmp_path, size=(20, 16), **instance):
    Image.new('RGB', size).save(tmp_path / 'a.png')
    instances = [dict(bbox=[1, 1, 9, 9], mask=[SQUARE]), dict(bbox=[0, 0, 4, 4]) | instance]
    return dict(img_path=str(tmp_path / 'a.png'), width=20, height=16, instances=instances)


def packed(mask):
    rle = coco_mask.encode(np.asfortranarray(mask))
    return dict(size=[int(side) for side in rle['size']], counts=rle['counts'].decode())


def test_compressed_runs_are_those_of_pycocotools():
    generator = np.random.default_rng(0)
    for density in (0.0, 0.02, 0.5, 1.0):
        mask = (generator.random((16, 20)) < density).astype(np.uint8)
        flat = mask.T.ravel()
        ends = [*np.flatnonzero(np.diff(flat)) + 1, flat.size]
        runs = [int(run) for run in np.diff([0, *ends])]
        assert _unpacked(packed(mask)['counts']) == ([0, *runs] if flat[0] else runs)


@pytest.mark.parametrize(
    'instance',
    [
        dict(mask=[SQUARE, [-20, -20, 40, -20, 40, 40]]),
        dict(mask=packed(np.eye(16, 20, dtype=np.uint8))),
        dict(mask=dict(size=[16, 20], counts=[300, 20])),
        dict(mask=dict(size=None, counts=None)),
        dict(mask=dict(size=np.array([16, 20]), counts=np.array([300, 20]))),
        dict(mask=[[], np.array(SQUARE)], bbox=np.array([1.0, 1, 9, 9])),
        dict(),
    ],
)
def test_good_instances_pass(tmp_path, instance):
    check_source(info(tmp_path, **instance))


@pytest.mark.parametrize(
    ('mask', 'message'),
    [
        ([[-21, 0, 4, 4, 0, 4]], r'instance 1: coordinate -21 .* allowed are -20 to 40'),
        ([SQUARE, [0, 0, 41, 4, 0, 4]], r'coordinate 41'),
        ([[0, 0, float('nan'), 4, 0, 4]], r'coordinate nan'),
        ([[0, 0, 10**400, 4, 0, 4]], r'expected numbers'),
        ([[0, 0, 'a', 4, 0, 4]], r'expected numbers'),
        ([[[0, 0], [4, 0], [0, 4]]], r'x, y, x, y \.\.\. in one list'),
        ([[0, 0, 20, 16] * 12], r'outline of 480 pixels .* allowed are 464'),
        (dict(size=[20, 16], counts=[320]), r'RLE of size \[20, 16\]: expected that of its image, \[16, 20\]'),
        (dict(size=[16, 20], counts=[319]), r'no 320 pixels'),
        (dict(size=[16, 20], counts=[330, -10]), r'no 320 pixels'),
        (dict(size=[16, 20], counts=[320.0]), r'no 320 pixels'),
        (dict(size=[16, 20], counts='`'), r'no 320 pixels'),
        (dict(size=[16, 20], counts='p0'), r"character 'p'"),
    ],
)
def test_bad_masks_are_refused(tmp_path, mask, message):
    with pytest.raises(ValueError, match=message):
        check_source(info(tmp_path, mask=mask))


def test_limit_of_pixels_from_both_sides(tmp_path):
    check_source(info(tmp_path), max_pixels=320)
    with pytest.raises(ValueError, match=r'a\.png has 320 pixels: allowed are 319 \(.*max_pixels'):
        check_source(info(tmp_path), max_pixels=319)


def test_annotated_size_counts_as_well(tmp_path):
    with pytest.raises(ValueError, match='size 100000 x 16'):
        check_source(info(tmp_path) | dict(width=100_000), max_pixels=1_000_000)
    with pytest.raises(ValueError, match='size 0 x 16: expected positive numbers'):
        check_source(info(tmp_path) | dict(width=0))


@pytest.mark.parametrize('side', [100, 400])
def test_limit_holds_where_pillow_warns_and_where_it_refuses(tmp_path, side):
    Image.new('1', (side, side)).save(tmp_path / 'a.png')
    with pytest.raises(ValueError, match=f'has {side * side:,} pixels: allowed are 9,999'):
        check_image_size(str(tmp_path / 'a.png'), 9_999)
    assert check_image_size(str(tmp_path / 'a.png'), side * side).size == (side, side)


def test_size_of_the_file_counts_where_the_annotations_give_none(tmp_path):
    sample = info(tmp_path, mask=[[0, 0, 41, 4, 0, 4]])
    del sample['width']
    with pytest.raises(ValueError, match='coordinate 41'):
        check_source(sample)


def test_files_of_other_formats_are_left_to_their_loaders(tmp_path):
    (tmp_path / 'a.npy').write_bytes(b'anything')
    check_source(dict(img_path=str(tmp_path / 'a.npy')))
    check_source(dict(img_path='s3://bucket/a.png', other_path=None, list_path=['nowhere', 3]))


def test_special_files_have_no_end(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / 'socket'))
        for path, kind in ((tmp_path / 'pipe', 'pipe'), (tmp_path / 'socket', 'socket'), ('/dev/zero', 'character')):
            with pytest.raises(ValueError, match=f'{path} is a {kind}'):
                check_source(dict(seg_map_path=str(path)))
    for path in (tmp_path, tmp_path / 'nothing', 'with\0zero'):
        check_regular(path)


def test_folders_are_listed_through_links(tmp_path):
    (tmp_path / 'a/b').mkdir(parents=True)
    (tmp_path / 'a/b/1.png').touch()
    (tmp_path / 'a/again').symlink_to('b')
    expected = sorted((path, files) for path, _, files in os.walk(tmp_path, followlinks=True))
    (tmp_path / 'a/b/._1.png').touch()
    (tmp_path / 'a/.#1.png').symlink_to('editor@host.1')
    assert sorted(files_below(tmp_path, complete=True)) == expected


def test_special_files_in_a_folder_are_refused(tmp_path):
    """Data sets that list folders leave them out without a word."""
    (tmp_path / 'cat').mkdir()
    (tmp_path / 'cat' / 'a.png').touch()
    (tmp_path / 'cat' / 'gone.png').symlink_to('nowhere')
    assert dict(files_below(tmp_path))[str(tmp_path / 'cat')]
    with pytest.raises(ValueError, match=r'cat/gone\.png is a link to nowhere, where there is no file'):
        list(files_below(tmp_path, complete=True))
    (tmp_path / 'cat' / 'b.png').symlink_to('/dev/zero')
    with pytest.raises(ValueError, match=r'cat/b\.png is a character device: expected a regular file'):
        list(files_below(tmp_path))


@pytest.mark.parametrize(('name', 'target'), [('a/b/c', '..'), ('a/b/c', '.'), ('a/b/c', '../..')])
def test_circles_of_links_are_refused(tmp_path, name, target):
    (tmp_path / 'a/b').mkdir(parents=True)
    (tmp_path / name).symlink_to(target)
    with pytest.raises(ValueError, match=r'/c leads to .* again'):
        list(files_below(tmp_path))


def test_instances_of_other_data_sets_are_left_alone():
    check_shapes(None, None, 20, 16)
    check_source(dict(width=20, height=16, instances=['anything', dict()]))


def test_run_lengths_of_a_coco_file_need_counts():
    """COCOeval ends in a TypeError; in training mmdet ignores such an instance."""
    image = dict(id=1, width=20, height=16)
    for counts in (None, 3):
        annotation = dict(id=5, image_id=1, bbox=[1, 1, 4, 4], segmentation=dict(size=[16, 20], counts=counts))
        ((what, reason),) = coco_complaints(dict(images=[image], annotations=[annotation]))
        assert what == 'annotation 5' and f'RLE with counts {counts}' in reason
