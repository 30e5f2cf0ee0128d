"""Several processes train as one, sharded or not: losses, gradients, steps, checkpoints for any number of them."""

import json
import multiprocessing
import shutil

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from sharded import BATCH, build, padded, step, steps_on_shards, train
from torch import nn
from torch.testing import assert_close
from toy_training import free_port

from vitplug.checkpoints.files import read_checkpoint
from vitplug.checkpoints.through_mmengine import load_from_file

EXACT = dict(rtol=1e-10, atol=1e-10)


def start(function, processes, *args):
    """Runs a function in some processes, forked from one that has imported it once."""
    multiprocessing.set_forkserver_preload(['sharded'])
    args = (processes, free_port(), *args)
    mp.start_processes(function, args, max(1, processes), start_method='forkserver')


@pytest.mark.slow
@pytest.mark.parametrize(
    ('host', 'processes', 'sharded'),
    [('vit', 4, True), ('swin', 2, True), ('projected', 2, True), ('vit', 2, False), ('swin', 2, False)],
)
def test_processes_have_the_loss_and_gradients_of_one(host, processes, sharded, tmp_path):
    start(step, processes, host, sharded, tmp_path / 'step.pth')
    loss, grads, norm, values = torch.load(tmp_path / 'step.pth')
    model = build(host)
    expected = model(padded(images(32, 40, batch=BATCH)))
    expected.backward()
    assert_close(loss, expected.detach(), **EXACT)
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()}, **EXACT)
    assert_close(norm, nn.utils.clip_grad_norm_(model.parameters(), 1.0), **EXACT)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert_close(values, {name: p.detach() for name, p in model.named_parameters()}, **EXACT)


def test_a_test_keeps_no_whole_model():
    from vitplug.runs.sharded_runner import ShardedRunner  # needs a later torch than the oldest supported one

    runner = ShardedRunner.__new__(ShardedRunner)
    runner.whole, runner._has_loaded = nn.Linear(1, 1), True
    runner.load_or_resume()  # tests call it first
    assert runner.whole is None


@pytest.mark.slow
def test_all_skip_a_step_whose_gradients_one_has_not_finite(tmp_path):
    """A shard of the gradients may be finite where another is not: the weights of one model would part silently."""
    start(steps_on_shards, 2, tmp_path)
    first, second = (json.loads((tmp_path / f'told{rank}.json').read_text()) for rank in (0, 1))
    assert first == second == [[1.0, 0], [2.0, 0], [2.0, 1], [3.0, 0]]


# --- trainings: AdamW, layer-wise decay, clipping, EMA ---


def trained(processes, work_dir, **settings):
    """The folder of a training in some processes, 0 for one without a process group."""
    settings |= dict(work_dir=work_dir)
    start(train, processes, settings)
    return work_dir


def state(path):
    """All numbers of a checkpoint, a file or a folder."""
    content = read_checkpoint(path)
    optimizer = {index: dict(values) for index, values in content['optimizer']['state'].items()}
    rates = [group['lr'] for group in content['optimizer']['param_groups']]
    # mmengine saves the averages as the weights.
    weights = {name.removeprefix('module.'): value for name, value in content['ema_state_dict'].items()}
    weights.pop('steps')
    return dict(weights=weights, averages=dict(content['state_dict']), optimizer=optimizer, rates=rates)


def end(work_dir):
    return state((work_dir / 'last_checkpoint').read_text())


def logged(work_dir, *names):
    """Scalars by iteration."""
    records = [
        json.loads(line) for path in work_dir.glob('*/vis_data/scalars.json') for line in path.read_text().splitlines()
    ]
    return {one['step']: [one[name] for name in names] for one in records if names[0] in one}


@pytest.fixture(scope='module')
def one(tmp_path_factory):
    """An ordinary training in one process."""
    return trained(0, tmp_path_factory.mktemp('one'))


@pytest.fixture(scope='module')
def four(tmp_path_factory):
    """The same in four processes, each with shards."""
    return trained(4, tmp_path_factory.mktemp('four'), sharded=True)


@pytest.mark.slow
def test_four_processes_train_as_one(one, four):
    assert_close(end(four), end(one), **EXACT)
    for name in ('grad_norm', 'residual_attention.alpha/all_blocks'):
        ours, theirs = logged(four, name), logged(one, name)
        assert ours and ours == {step: pytest.approx(value) for step, value in theirs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(('processes', 'sharded'), [(2, True), (0, False)])
def test_a_training_of_four_goes_on_in_fewer(processes, sharded, four, tmp_path):
    """In shards of two, and in one process without shards, the next ten steps are the same."""
    assert len(list((four / 'iter_2.pth').glob('*.distcp'))) == 4
    options = {'default_hooks.checkpoint.max_keep_ckpts': 2}
    shutil.copytree(four / 'iter_4.pth', tmp_path / 'iter_4.pth')  # whose name is taken
    trained(processes, tmp_path, sharded=sharded, resume=four / 'iter_2.pth', options=options)
    assert_close(end(tmp_path), end(four), **EXACT)
    kept = {path.name: path.is_dir() for path in tmp_path.iterdir() if 'pth' in path.name}
    assert kept == dict.fromkeys(['iter_10.pth', 'iter_12.pth'], sharded)


@pytest.mark.slow
def test_a_file_goes_on_in_shards(one, four, tmp_path):
    shutil.copy(one / 'iter_4.pth', tmp_path)
    trained(2, tmp_path, sharded=True, resume=one / 'iter_2.pth')
    assert_close(end(tmp_path), end(four), **EXACT)


@pytest.mark.slow
def test_a_folder_that_lacks_a_shard_is_refused(four, tmp_path):
    shutil.copytree(four / 'iter_2.pth', tmp_path / 'iter_2.pth')
    next((tmp_path / 'iter_2.pth').glob('__2*')).unlink()
    with pytest.raises(ValueError, match='damaged or not whole'):
        load_from_file(str(tmp_path / 'iter_2.pth'))
