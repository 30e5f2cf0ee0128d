"""Files without an end, images that unpack to gigabytes, and folders that contain themselves."""

import os
import socket

import pytest
from PIL import Image

from vitplug.files.folders import files_below
from vitplug.files.limits import check_image_size, check_regular


@pytest.mark.parametrize('side', [100, 400])
def test_limit_holds_where_pillow_warns_and_where_it_refuses(tmp_path, side):
    Image.new('1', (side, side)).save(tmp_path / 'a.png')
    with pytest.raises(ValueError, match=f'has {side * side:,} pixels: allowed are 9,999'):
        check_image_size(str(tmp_path / 'a.png'), 9_999)
    assert check_image_size(str(tmp_path / 'a.png'), side * side).size == (side, side)


def test_files_of_other_formats_are_left_to_their_loaders(tmp_path):
    (tmp_path / 'a.npy').write_bytes(b'anything')
    assert check_image_size(str(tmp_path / 'a.npy'), 9_999) is None


def test_special_files_have_no_end(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / 'socket'))
        for path, kind in ((tmp_path / 'pipe', 'pipe'), (tmp_path / 'socket', 'socket'), ('/dev/zero', 'character')):
            with pytest.raises(ValueError, match=f'{path} is a {kind}'):
                check_regular(path)
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
