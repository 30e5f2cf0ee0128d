"""Readers of mmengine, numpy and torch run no code of a file, and read all others."""

import pickle
import re
from contextlib import nullcontext

import mmengine
import numpy as np
import pytest
import torch
from bad_inputs import Malicious, own_process

from vitplug.config.checks import check_no_pickles
from vitplug.files.readers import check_yaml_growth, refuse_code_in_files


@pytest.fixture
def folder(tmp_path):
    with own_process(tmp_path):
        refuse_code_in_files()
        yield tmp_path


def yaml_with_code(path):
    path.write_text("!!python/object/apply:os.mkdir ['harm']")


def pickled(path):
    path.write_bytes(pickle.dumps(Malicious()))


READERS = {
    'by its name': ('a.pkl', pickled, mmengine.load),
    'with a format': ('a.p', pickled, lambda path: mmengine.load(path, file_format='pkl')),
    'YAML': ('a.yml', yaml_with_code, mmengine.load),
    'arrays': ('a.npy', lambda path: np.save(path, np.array([Malicious()])), lambda path: np.load(path, None, True)),
    'arrays by a keyword': ('a.npy', pickled, lambda path: np.load(path, allow_pickle=True)),
    'tensors': ('a.pth', lambda path: torch.save(Malicious(), path), lambda path: torch.load(path, weights_only=False)),
}


@pytest.mark.integration
@pytest.mark.parametrize('reader', READERS)
def test_no_reader_runs_code(reader, folder):
    name, make, read = READERS[reader]
    make(folder / name)
    with pytest.raises(Exception, match=r'pickle|python/object/apply|[Ww]eights.only'):
        read(name)
    assert not (folder / 'harm').exists()


@pytest.mark.integration
@pytest.mark.parametrize('reader', READERS)
def test_without_the_refusal_all_of_them_do(reader, tmp_path):
    name, make, read = READERS[reader]
    make(tmp_path / name)
    with own_process(tmp_path):
        read(name)
    assert (tmp_path / 'harm').exists()


@pytest.mark.integration
def test_plain_files_are_read_and_pickles_written(folder):
    (folder / 'a.yaml').write_text('a: [1, 2.5, b]')
    (folder / 'a.json').write_text('[1]')
    np.save('a.npy', np.arange(3))
    torch.save(dict(w=torch.ones(1)), 'a.pth')
    mmengine.dump([1], 'a.pkl')
    assert mmengine.load('a.yaml') == dict(a=[1, 2.5, 'b']) and mmengine.load('a.json') == [1]
    assert np.load('a.npy').tolist() == [0, 1, 2] and torch.load('a.pth')['w'] == 1
    assert pickle.loads((folder / 'a.pkl').read_bytes()) == [1]


@pytest.mark.parametrize(
    ('part', 'settings', 'name'),
    [
        ('model', dict(head=[dict(loss=dict(class_weight='w.pkl'))]), 'model.head.0.loss.class_weight'),
        ('train_dataloader', dict(dataset=dict(proposal_file='p.pickle')), 'train_dataloader.dataset.proposal_file'),
        ('val_evaluator', [dict(occluded_ann='o.yml')], 'val_evaluator.0.occluded_ann'),
        ('custom_hooks', [dict(queue='q.pkl')], 'custom_hooks.0.queue'),
        ('model', dict(tag_list='tags.txt'), 'model.tag_list'),
    ],
)
def test_settings_are_named(part, settings, name):
    with pytest.raises(ValueError, match=f'^{re.escape(name)} = .*can run code.*--unsafe-unpickle'):
        check_no_pickles({part: settings})


def test_results_and_checkpoints_may_be_pickles():
    check_no_pickles(
        dict(test_evaluator=[dict(out_file_path='out.pkl')], model=dict(init_cfg=dict(checkpoint='a.pkl')))
    )


@pytest.mark.parametrize(
    ('aliases', 'levels', 'said'),
    [(8, 3, None), (8, 9, r'a\.yml unfolds to [\d,]+ values through its aliases: allowed are 100,000'), (1, 0, 'inf')],
)
def test_yaml_whose_aliases_unfold_to_billions(tmp_path, aliases, levels, said):
    lines = ['l0: &l0 [x]' if levels else 'l0: &l0 [*l0]']
    lines += [f'l{n}: &l{n} [{", ".join([f"*l{n - 1}"] * aliases)}]' for n in range(1, levels + 1)]
    (tmp_path / 'a.yml').write_text('\n'.join(lines))
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        check_yaml_growth(tmp_path / 'a.yml')
