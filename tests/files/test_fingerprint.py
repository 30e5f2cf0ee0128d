"""Fingerprints change with what they are of, and with nothing else."""

import hashlib
import os
import shutil

import pytest

from vitplug.files.folders import file_hash, names_in, of_folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / 'images'
    for name in ('cat/0.png', 'cat/1.png', 'dog/0.png'):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(name.encode())
    return made


def test_a_folder_is_known_by_names_and_content_alone(folder, tmp_path):
    seen = {of_folder(folder)}
    assert of_folder(shutil.copytree(folder, tmp_path / 'elsewhere' / 'other name')) in seen
    (folder / '.DS_Store').write_bytes(b'x')
    assert of_folder(f'{folder}/') in seen
    for change in (
        lambda: (folder / 'dog/1.png').write_bytes(b'x'),
        lambda: (folder / 'dog/1.png').rename(folder / 'cat/2.png'),
        lambda: (folder / 'cat/0.png').unlink(),
        lambda: (folder / 'cat/1.png').write_bytes(b'CAT/1.png'),  # of the same size
    ):
        change()
        found = of_folder(folder)
        assert found not in seen
        seen.add(found)


def test_links_are_followed(folder, tmp_path):
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'outside' / '9.PNG').write_bytes(b'x')
    (folder / 'linked').symlink_to(tmp_path / 'outside')
    assert os.path.join('linked', '9.PNG') in names_in(folder, ('.png',))


def test_a_file_counts_by_all_of_its_content(tmp_path):
    path = tmp_path / 'long'
    path.write_bytes(b'x' * (3 << 20) + b'y')
    assert file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()
