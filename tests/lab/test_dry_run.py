"""Two steps of a training before it: with the data and without, what learns and what is loaded; nothing is written."""

import re
from pathlib import Path

import bad_inputs
import pytest

from vitplug.lab.dry_run import grouped

pytestmark = pytest.mark.integration

DIGITS = Path(__file__).resolve().parents[2] / 'configs' / 'digits'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    next(DIGITS.glob(name))
    for name in ('vit-mini-p4-cb_1xb32-14e_*', '*-cb_upernet_1xb8-1200i_*', 'swin-*-cb_mask-rcnn_1xb8-400i_*')
)
SMALL = '--batch-size 2'


def dry_run(command, folder, status=0):
    """The lines of a command by their titles; it leaves the folder as it was."""
    before = bad_inputs.snapshot(folder)
    outcome = bad_inputs.run(f'dry_run.py {command}', folder)
    assert outcome.status == status, outcome.text[-3000:]
    assert bad_inputs.snapshot(folder) == before
    return outcome.err if status else dict(re.findall(r'^(\w+(?: \w+)?) +(\S.*)$', outcome.out, re.M))


@pytest.mark.parametrize('config', [CLASSIFICATION, SEGMENTATION, DETECTION], ids=['class', 'map', 'boxes'])
def test_data_is_made_where_there_is_none(config, tmp_path):
    side = 32 if config is CLASSIFICATION else 128
    lines = dry_run(f'{config} {SMALL}', tmp_path)
    assert lines['data'].startswith('made (no such data folder: ') or 'no such annotation file' in lines['data']
    assert lines['batch'].startswith(f'2 of {side}x{side}')
    assert re.fullmatch(r'\d+\.\d\d s, loss \d+(\.\d+)?', lines['step 2'])
    count, of = re.match(r'(\d+) of (\d+) parameters', lines['learn']).groups()
    assert count == of and 'frozen' not in lines and 'NO gradient' not in lines


@pytest.fixture
def data(tmp_path):
    """A config and its data."""
    return bad_inputs.prepare(tmp_path / 'data')


def test_data_that_is_there_is_read(data):
    lines = dry_run('tiny.py', data)
    assert lines['data'] == 'the first batch of train_dataloader'
    assert dry_run('tiny.py --shape 64 32', data)['batch'].endswith('of 64x32 (before augments of batches)')


def test_what_does_not_learn_is_named(data):
    lines = dry_run('tiny.py --cfg-options model.backbone.out_indices=0', data)
    assert 'backbone.layers.1.attn.qkv.weight' in lines['NO gradient'] and 'frozen' not in lines
    lines = dry_run('tiny.py --cfg-options model.backbone.frozen_stages=2', data)
    assert 'backbone.layers.*.attn.qkv.weight (2)' in lines['frozen'] and 'NO gradient' not in lines


def test_weights_that_are_loaded_are_counted(data):
    bad_inputs.starting('good.pth')(data)
    assert re.search(r'loaded (\d+) of \1 backbone tensors', bad_inputs.run('dry_run.py child.py', data).text)


@pytest.mark.parametrize(
    ('command', 'message'),
    [
        ('tiny.py --shape 0', r'--shape 0: expected height and width'),
        ('tiny.py --cfg-options optim_wrapper.optimizer.type=SDG', r'SDG'),
        ('tiny.py --cfg-options model.head.in_channels=5', r'error: head'),
    ],
)
def test_bad_inputs_end_in_one_line(command, message, data):
    told = [line for line in dry_run(command, data, status=2).splitlines() if 'error: ' in line]
    assert len(told) == 1 and re.search(message, told[0])


def test_names_of_blocks_are_one():
    names = [f'layers.{block}.{kind}' for block in range(12) for kind in ('a', 'b')]
    assert grouped([*names, 'norm']) == 'layers.*.a (12), layers.*.b (12), norm'
