"""Fingerprints change with what they are of, and with nothing else."""

import hashlib
import os
import shutil

import pytest

from vitplug.files.folders import file_hash, names_in, of_file, of_folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / 'images'
    for name in ('cat/0.png', 'cat/1.png', 'dog/0.png'):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(name.encode())
    return made


def test_copies_elsewhere_are_equal(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / 'elsewhere' / 'other name')
    assert of_folder(other) == of_folder(folder)
    assert of_file(other / 'cat/0.png') == of_file(folder / 'cat/0.png')
    assert of_folder(f'{folder}/') == of_folder(folder)


def test_a_file_added_removed_or_renamed_changes_a_folder(folder):
    seen = {of_folder(folder)}
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


def test_hidden_files_do_not_count_and_links_do(folder, tmp_path):
    before = of_folder(folder)
    (folder / '.DS_Store').write_bytes(b'x')
    assert of_folder(folder) == before
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'outside' / '9.PNG').write_bytes(b'x')
    (folder / 'linked').symlink_to(tmp_path / 'outside')
    assert os.path.join('linked', '9.PNG') in names_in(folder, ('.png',))


def test_a_file_counts_by_all_of_its_content(tmp_path):
    long, other = tmp_path / 'long', tmp_path / 'other'
    long.write_bytes(b'x' * (3 << 20))
    other.write_bytes(b'x' * ((3 << 20) - 1) + b'y')
    assert of_file(long) != of_file(other)
    assert file_hash(long) == hashlib.sha256(long.read_bytes()).hexdigest()
