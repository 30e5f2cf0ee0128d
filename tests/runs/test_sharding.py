"""Sharded training is the training of one process: losses, gradients, steps, and checkpoints for any number of them."""

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from runs.test_distributed import free_port
from sharded import BATCH, HOSTS, build, step, train
from torch import nn
from torch.testing import assert_close

from vitplug.checkpoints.files import read_checkpoint
from vitplug.runs.sharding import FSDP2Strategy

EXACT = dict(rtol=1e-10, atol=1e-10)
SETTINGS = {
    'vit': (4, {}),
    'swin': (2, dict(activation_checkpointing=True)),
    'mvit': (4, dict(shard_over=2, reshard_after_forward=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize('host', HOSTS)
def test_shards_have_the_loss_and_gradients_of_one_process(host, tmp_path):
    processes, settings = SETTINGS[host]
    mp.spawn(step, args=(processes, free_port(), host, settings, tmp_path / 'step.pth'), nprocs=processes)
    loss, grads, norm = torch.load(tmp_path / 'step.pth')
    model = build(host)
    expected = model(images(32, 40, batch=BATCH))
    expected.backward()
    assert_close(loss, expected.detach(), **EXACT)
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()}, **EXACT)
    assert_close(norm, nn.utils.clip_grad_norm_(model.parameters(), 1.0), **EXACT)


# --- arguments ---


@pytest.mark.parametrize(
    'settings, message',
    [
        (dict(checkpoints='file'), r"strategy\.checkpoints = 'file': expected one of \['shards', 'whole'\]"),
        (dict(shard_over='machine'), r"strategy\.shard_over = 'machine': expected 'all', 'node' or a number"),
        (dict(shard_over=3), r'strategy\.shard_over = 3: .* divides the 1 processes'),
        (
            dict(mixed_precision=dict(param_dtype='half8')),
            r"mixed_precision\.param_dtype = 'half8': expected .*bfloat16",
        ),
        (dict(mixed_precision=dict(dtype='bfloat16')), r"mixed_precision = \{'dtype': 'bfloat16'\}"),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        FSDP2Strategy(**settings)


def test_a_torch_without_fully_shard_is_refused(monkeypatch):
    monkeypatch.delattr('torch.distributed.fsdp.fully_shard')
    with pytest.raises(
        ImportError, match=r'needs torch\.distributed\.fsdp\.fully_shard, which .*: use the default stack'
    ):
        FSDP2Strategy()


# --- trainings: AdamW, layer-wise decay, clipping, EMA ---


def trained(processes, work_dir, **settings) -> Path:
    settings = (
        dict(work_dir=work_dir, strategy=None, **settings)
        if 'strategy' not in settings
        else dict(work_dir=work_dir, **settings)
    )
    mp.spawn(train, args=(processes, free_port(), settings), nprocs=max(1, processes))
    return work_dir


def end(work_dir):
    """All numbers that a training ends with."""
    content = read_checkpoint((work_dir / 'last_checkpoint').read_text())
    optimizer = {index: dict(state) for index, state in content['optimizer']['state'].items()}
    rates = [group['lr'] for group in content['optimizer']['param_groups']]
    return dict(
        weights=dict(content['state_dict']), averages=dict(content['ema_state_dict']), optimizer=optimizer, rates=rates
    )


def losses(work_dir):
    found = {}
    for path in work_dir.glob('*/vis_data/scalars.json'):
        for record in map(json.loads, path.read_text().splitlines()):
            if 'loss' in record:
                found[record['step']] = (record['loss'], record['grad_norm'])
    return found


@pytest.fixture(scope='module')
def one(tmp_path_factory):
    """An ordinary training in one process."""
    return trained(0, tmp_path_factory.mktemp('one'))


@pytest.fixture(scope='module')
def four(tmp_path_factory):
    """The same in four processes, each with shards."""
    return trained(4, tmp_path_factory.mktemp('four'), strategy=dict())


@pytest.mark.slow
def test_four_processes_train_as_one(one, four):
    assert_close(end(four), end(one), **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize('processes, strategy', [(2, dict(checkpoints='whole')), (1, dict(meta_start=True)), (0, None)])
def test_a_training_of_four_goes_on_in_fewer_processes(processes, strategy, four, tmp_path):
    """Sharded by other numbers, and in one process without shards, the next ten steps are the same."""
    folder = four / 'iter_2.pth'
    assert folder.is_dir() and len(list(folder.glob('*.distcp'))) == 4
    trained(processes, tmp_path, strategy=strategy, resume=folder)
    assert_close(end(tmp_path), end(four), **EXACT)
    before, after = losses(four), losses(tmp_path)
    assert list(after) == list(range(3, 13))
    # Means over different numbers of images are logged, all of one process.
    assert {step: norm for step, (_, norm) in after.items()} == pytest.approx(
        {step: before[step][1] for step in after}, rel=1e-6
    )
