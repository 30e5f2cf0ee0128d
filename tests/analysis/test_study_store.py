"""The folder of an analysis: it goes on where it stopped, and takes no other one's."""

import json
import subprocess
import sys

import numpy as np
import pytest

from vitplug.analysis.study.store import LOCK, Store, check_folder, open_store

MINE = dict(model=dict(checkpoint='abc'), images=dict(number=3))


def test_arrays_come_back(tmp_path):
    store = Store(tmp_path / 'out', MINE)
    assert store.units('model', 'entropy') == {}
    arrays = [{'patch queries': np.array([[1.0, np.nan]]), 'all': np.arange(3)}, {'patch queries': np.ones((2, 2))}]
    store.add('model', 'entropy', 7, arrays[0])
    store.add('model', 'entropy', 2, arrays[1])
    store.add('model and baseline', 'cka', 0, {})
    store.save()
    again = Store(tmp_path / 'out', MINE).units('model', 'entropy')
    assert sorted(again) == [2, 7] and set(again[7]) == {'patch queries', 'all'}
    np.testing.assert_equal(again[7], arrays[0])
    np.testing.assert_equal(again[2], arrays[1])
    assert Store(tmp_path / 'out', MINE).units('baseline', 'entropy') == {}
    assert sorted(path.name for path in (tmp_path / 'out/arrays').iterdir()) == [
        'model.entropy.npz',
        'model_and_baseline.cka.npz',
    ]


def test_what_is_not_saved_is_lost_and_what_is_saved_stays(tmp_path):
    store = Store(tmp_path / 'out', MINE)
    store.add('model', 'entropy', 0, {'a': np.ones(2)})
    store.save()
    store.add('model', 'entropy', 1, {'a': np.ones(2)})
    assert sorted(Store(tmp_path / 'out', MINE).units('model', 'entropy')) == [0]


def test_folder_of_another_analysis(tmp_path):
    Store(tmp_path / 'out', MINE)
    with pytest.raises(FileExistsError, match=r'out is of another analysis \(images: \{number: 3\}, now \{number: 4\}'):
        Store(tmp_path / 'out', MINE | dict(images=dict(number=4)))
    with pytest.raises(FileExistsError, match=r'\(baseline: null, now \{checkpoint: b\}\)'):
        Store(tmp_path / 'out', MINE | dict(baseline=dict(checkpoint='b')))
    assert json.loads((tmp_path / 'out/study.json').read_text()) == MINE
    (tmp_path / 'out/study.json').write_text('[1]')
    with pytest.raises(FileExistsError, match=r'study\.json is no record of an analysis'):
        Store(tmp_path / 'out', MINE)


def test_folder_with_other_files(tmp_path):
    check_folder(tmp_path)
    (tmp_path / 'mine.txt').write_text('mine')
    for path in (tmp_path, tmp_path / 'mine.txt'):
        with pytest.raises(FileExistsError, match='holds other files, or is one'):
            check_folder(path)


@pytest.mark.parametrize('damage', [lambda content: content[:40], lambda content: b'', lambda content: b'PK\x05\x06'])
def test_broken_arrays_are_named(tmp_path, damage):
    store = Store(tmp_path / 'out', MINE)
    store.add('model', 'entropy', 0, {'a': np.ones(2)})
    store.save()
    path = tmp_path / 'out/arrays/model.entropy.npz'
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r'model\.entropy\.npz cannot be read'):
        Store(tmp_path / 'out', MINE).units('model', 'entropy')


HOLDS_THE_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
file.write('host there, process 7')
file.flush()
print('held', flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
def test_one_analysis_at_a_time(tmp_path):
    """A lock is a process's, so that another process has to hold it."""
    with open_store(tmp_path / 'out', MINE) as store:
        store.add('model', 'entropy', 0, {'a': np.ones(2)})
        store.save()
    with open_store(tmp_path / 'out', MINE) as store:  # was released
        assert list(store.units('model', 'entropy')) == [0]
    lock = tmp_path / 'out' / LOCK
    other = subprocess.Popen(
        [sys.executable, '-c', HOLDS_THE_LOCK, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == 'held\n'
        taken = r'another analysis is running in .*out \(host there, process 7\): .*choose another --out'
        with pytest.raises(BlockingIOError, match=taken), open_store(tmp_path / 'out', MINE):
            pass
    finally:
        other.communicate()
    with open_store(tmp_path / 'out', MINE) as store:  # the end of a process releases its lock
        assert list(store.units('model', 'entropy')) == [0]


def test_a_lock_file_alone_is_no_other_file(tmp_path):
    """An analysis that ended before its first record leaves one."""
    (tmp_path / LOCK).write_text('host there, process 7')
    with open_store(tmp_path, MINE):
        pass
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / LOCK).touch()
    (tmp_path / 'other' / 'mine.txt').touch()
    with pytest.raises(FileExistsError, match='holds other files'):
        check_folder(tmp_path / 'other')
