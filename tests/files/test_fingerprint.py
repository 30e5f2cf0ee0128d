"""Fingerprints change with what they are of, and with nothing else."""

import hashlib
import os
import shutil

import pytest

from vitplug.files.fingerprint import file_hash, of_file, of_folder
from vitplug.files.folders import names_in


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
    ):
        change()
        found = of_folder(folder)
        assert found not in seen
        seen.add(found)


def test_names_and_sizes_do_not_run_together(tmp_path):
    """Files 'a' of 1 byte and 'b', and a file whose name is all of that, are different folders."""
    for place, files in {'one': {'a': 1, 'b': 2}, 'other': {'a': 12, 'b': 0}, 'third': {'ab': 12}}.items():
        for name, size in files.items():
            (tmp_path / place).mkdir(exist_ok=True)
            (tmp_path / place / name).write_bytes(b'x' * size)
    assert len({of_folder(tmp_path / place) for place in ('one', 'other', 'third')}) == 3


def test_a_repaired_file_of_another_size_changes_a_folder(folder):
    before = of_folder(folder)
    (folder / 'cat/0.png').write_bytes(b'whole again')
    assert of_folder(folder) != before


def test_only_endings_that_count_do_and_no_hidden_files(folder):
    before, images = of_folder(folder), names_in(folder, ('.PNG',))
    (folder / '.DS_Store').write_bytes(b'x')
    assert of_folder(folder) == before
    (folder / 'notes.txt').write_bytes(b'x')
    assert of_folder(folder) != before and names_in(folder, ('.PNG',)) == images != names_in(folder)


def test_the_order_in_which_a_disk_lists_files_does_not_count(folder, monkeypatch):
    before, scan = of_folder(folder), os.scandir

    class Backwards:
        def __init__(self, path):
            self.entries = sorted(scan(path), key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return self.entries

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, 'scandir', Backwards)
    assert of_folder(folder) == before


def test_names_that_are_not_utf8(folder):
    before = of_folder(folder)
    with open(os.fsencode(folder) + b'/cat/\xff.png', 'wb'):
        pass
    assert of_folder(folder) != before


def test_a_linked_folder_counts_and_a_circle_is_refused(folder, tmp_path):
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / '9.png').write_bytes(b'x')
    (folder / 'linked').symlink_to(outside)
    assert os.path.join('linked', '9.png') in names_in(folder)
    (outside / 'back').symlink_to(folder)
    with pytest.raises(ValueError, match='again'):
        of_folder(folder)


def test_a_file_counts_by_all_of_its_content(tmp_path):
    long, other = tmp_path / 'long', tmp_path / 'other'
    long.write_bytes(b'x' * (3 << 20))
    other.write_bytes(b'x' * ((3 << 20) - 1) + b'y')
    assert of_file(long) != of_file(other)
    assert file_hash(long) == hashlib.sha256(long.read_bytes()).hexdigest()


def test_what_is_not_there_is_refused(tmp_path):
    for of_path in (of_file, of_folder):
        with pytest.raises(FileNotFoundError):
            of_path(tmp_path / 'none')
