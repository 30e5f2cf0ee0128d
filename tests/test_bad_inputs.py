"""Every bad input gets the error that the list says; nothing is overwritten, and no file runs code of its own."""

import pickle
import re

import bad_inputs
import pytest
import torch
from bad_inputs import ROWS, UNTRUSTED, changed, child, code_in_meta, lying_header, run, snapshot
from mmengine.config import Config

from vitplug.analysis.prediction_panels import load_trained
from vitplug.checkpoints import read_checkpoint
from vitplug.checkpoints.safe_loading import load_safely
from vitplug.errors.stops import CheckpointNotRead

ALL = [row for rows in ROWS.values() for row in rows]


def changes(folder, before):
    """The files that are no longer what they were."""
    after = snapshot(folder)
    return [path for path, content in before.items() if after.get(path) != content]


@pytest.mark.integration
@pytest.mark.sampled(3)
@pytest.mark.parametrize('row', ALL, ids=lambda row: row.title)
def test_row(row, folder):
    row.make(folder)
    before = snapshot(folder)
    outcome = run(row.command, folder)
    assert re.search(row.error, outcome.text), outcome.text[-2000:]
    assert outcome.status == row.status, outcome.text[-2000:]
    assert 'Traceback' not in outcome.text
    assert changes(folder, before) == []
    assert not (folder / 'harm').exists()
    if row.status and 'check_dataset' not in row.command:  # whose findings are a report on stdout
        told = [line for line in outcome.err.splitlines() if re.match(r'(\S+: )?error: ', line)]
        assert len(told) == 1


def test_titles_differ():
    assert len({row.title for row in ALL}) == len(ALL)


@pytest.mark.integration
def test_sound_input_passes(folder):
    """Otherwise any message would do."""
    for command in ('train.py tiny.py', 'test.py tiny.py good.pth', 'get_flops.py swin.py --shape 32'):
        assert run(command, folder).status == 0
    for name in ('tiny', 'segment', 'detect'):
        assert run(f'check_dataset.py {name}.py --splits train', folder).out.endswith('0 errors, 0 notes\n')


# --- files that are not to be trusted ---


READERS = {
    'test': 'test.py tiny.py {}',
    'resume': 'train.py tiny.py --resume {}',
    'load_from': 'train.py tiny.py --cfg-options load_from={}',
    'init_cfg': 'train.py child.py --cfg-options model.backbone.init_cfg.type=Pretrained '
    'model.backbone.init_cfg.checkpoint={}',
    'init_cfg of vitplug': 'train.py child.py --cfg-options model.backbone.init_cfg.type=vitplug.Pretrained '
    'model.backbone.init_cfg.checkpoint={}',
    'dry run from load_from': 'dry_run.py tiny.py --cfg-options load_from={}',
    'dry run from init_cfg': 'dry_run.py child.py --cfg-options model.backbone.init_cfg.type=Pretrained '
    'model.backbone.init_cfg.checkpoint={}',
    'convert': 'convert.py {} new.pth',
    'publish': 'publish_model.py {} new.pth',
}
FILES = {
    **{title: (make, 'bad.pth') for title, make in UNTRUSTED.items()},
    'a header of 4 TB': (lying_header([10**12], 4 * 10**12), 'bad.safetensors'),
    'a header of another shape': (lying_header([3], 8), 'bad.safetensors'),
}


@pytest.mark.integration
@pytest.mark.sampled(3)
@pytest.mark.parametrize('file', FILES)
@pytest.mark.parametrize('reader', READERS)
def test_no_tool_reads_it(file, reader, folder):
    make, name = FILES[file]
    make(folder)
    child('model = dict(backbone=dict(init_cfg=dict()))')(folder)
    outcome = run(READERS[reader].format(name), folder)
    assert outcome.status in (2, 66), outcome.text[-2000:]
    assert name in outcome.err.splitlines()[-1] and 'Traceback' not in outcome.text
    assert not (folder / 'harm').exists() and not (folder / 'new.pth').exists()


@pytest.mark.integration
@pytest.mark.parametrize('command', ['convert.py bad.pth new.pth', 'test.py tiny.py bad.pth'])
def test_a_pickle_runs_where_the_flag_says_so(command, folder):
    UNTRUSTED['a pickle that would make a folder'](folder)
    run(f'{command} --unsafe-unpickle', folder)
    assert (folder / 'harm').exists()


@pytest.mark.integration
def test_class_weights_run_where_the_flag_says_so(folder):
    bad_inputs.write('w.pkl', pickle.dumps(bad_inputs.Malicious()))(folder)
    bad_inputs.class_weight('w.pkl')(folder)
    run('train.py child.py --unsafe-unpickle', folder)
    assert (folder / 'harm').exists()


@pytest.mark.integration
def test_text_of_a_config_in_a_checkpoint_is_not_run(folder):
    """mmengine runs it when a training is resumed."""
    changed(code_in_meta)(folder)
    assert run('train.py tiny.py --resume bad.pth', folder).status == 0
    assert not (folder / 'harm').exists()


def test_pictures_of_a_trained_model_read_no_code(folder):
    UNTRUSTED['a pickle that would make a folder'](folder)
    with bad_inputs.own_process(folder), pytest.raises(CheckpointNotRead, match=r'bad\.pth'):
        load_trained(Config.fromfile('tiny.py'), 'bad.pth')
    assert not (folder / 'harm').exists()


@pytest.mark.parametrize('read', [read_checkpoint, load_safely])
def test_bomb_is_refused_before_it_is_read(read, folder, monkeypatch):
    UNTRUSTED['a zip bomb of tensors'](folder)
    monkeypatch.setattr(torch, 'load', lambda *args, **kwargs: pytest.fail('was read'))
    with pytest.raises((ValueError, CheckpointNotRead), match=r'bad\.pth has .* bytes and would fill 80,000'):
        read(folder / 'bad.pth')
