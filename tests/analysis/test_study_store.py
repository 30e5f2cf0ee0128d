"""The folder of an analysis: it goes on where it stopped, and takes no other one's."""

import json

import numpy as np
import pytest

from vitplug.analysis.study.store import Store, check_folder

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


def test_broken_arrays_are_named(tmp_path):
    store = Store(tmp_path / 'out', MINE)
    store.add('model', 'entropy', 0, {'a': np.ones(2)})
    store.save()
    path = tmp_path / 'out/arrays/model.entropy.npz'
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r'model\.entropy\.npz cannot be read'):
        Store(tmp_path / 'out', MINE).units('model', 'entropy')
