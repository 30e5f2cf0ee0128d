"""Sharded training is the training of one process: losses, gradients, steps, and checkpoints for any number of them."""

import json
import multiprocessing
import shutil

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from runs.test_distributed import free_port
from sharded import BATCH, HOSTS, build, compare_first_values, mixed_precision, step, train
from torch import nn
from torch.testing import assert_close

from vitplug.checkpoints.files import read_checkpoint
from vitplug.checkpoints.safe_loading import load_from_file
from vitplug.runs.sharding import FSDP2Strategy

EXACT = dict(rtol=1e-10, atol=1e-10)
SETTINGS = {
    'vit': (4, {}),
    'swin': (2, dict(activation_checkpointing=True)),
    'mvit': (4, {}),
    'projected': (2, {}),
}


def start(function, processes, *args):
    """Runs a function in some processes, forked from one that has imported it once."""
    multiprocessing.set_forkserver_preload(['sharded'])
    args = (processes, free_port(), *args)
    mp.start_processes(function, args, max(1, processes), start_method='forkserver')


@pytest.mark.slow
@pytest.mark.parametrize('host', HOSTS)
def test_shards_have_the_loss_and_gradients_of_one_process(host, tmp_path):
    processes, settings = SETTINGS[host]
    start(step, processes, host, settings, tmp_path / 'step.pth')
    loss, grads, norm, values = torch.load(tmp_path / 'step.pth')
    model = build(host)
    expected = model(images(32, 40, batch=BATCH))
    expected.backward()
    assert_close(loss, expected.detach(), **EXACT)
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()}, **EXACT)
    assert_close(norm, nn.utils.clip_grad_norm_(model.parameters(), 1.0), **EXACT)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert_close(values, {name: p.detach() for name, p in model.named_parameters()}, **EXACT)


@pytest.mark.slow
def test_first_values_are_those_of_one_process(tmp_path):
    start(compare_first_values, 2, tmp_path / 'differing')
    assert (tmp_path / 'differing').read_text() == ''


@pytest.mark.slow
def test_backbones_in_bfloat16_keep_the_padding_and_leave_the_rest_in_float32(tmp_path):
    start(mixed_precision, 1, tmp_path / 'outs.pth')
    for host, ((marked, unmarked, mixed), grads) in torch.load(tmp_path / 'outs.pth').items():
        assert mixed.dtype == torch.float32 and grads == {torch.float32}, host
        assert (mixed - marked).norm() < (unmarked - marked).norm() / 2, host


# --- arguments ---


@pytest.mark.parametrize(
    'settings, message',
    [
        (
            dict(mixed_precision=dict(param_dtype='half8')),
            r"mixed_precision\.param_dtype = 'half8': expected .*bfloat16",
        ),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        FSDP2Strategy(**settings)


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
    return trained(4, tmp_path_factory.mktemp('four'), strategy={})


@pytest.mark.slow
def test_four_processes_train_as_one(one, four):
    assert_close(end(four), end(one), **EXACT)
    for name in ('grad_norm', 'residual_attention.alpha/all_blocks'):
        ours, theirs = logged(four, name), logged(one, name)
        assert ours and ours == {step: pytest.approx(value) for step, value in theirs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(('processes', 'strategy'), [(2, {}), (0, None)], ids=['2', '0'])
def test_a_training_of_four_goes_on_in_fewer(processes, strategy, four, tmp_path):
    """In shards of two, and in one process without shards, the next ten steps are the same."""
    assert len(list((four / 'iter_2.pth').glob('*.distcp'))) == 4
    options = {'default_hooks.checkpoint.max_keep_ckpts': 2}
    trained(processes, tmp_path, strategy=strategy, resume=four / 'iter_2.pth', options=options)
    assert_close(end(tmp_path), end(four), **EXACT)
    kept = {path.name: path.is_dir() for path in tmp_path.iterdir() if 'pth' in path.name}
    assert kept == dict.fromkeys(['iter_10.pth', 'iter_12.pth'], strategy is not None)


@pytest.mark.slow
def test_a_file_goes_on_in_shards(one, four, tmp_path):
    trained(2, tmp_path, strategy={}, resume=one / 'iter_2.pth')
    assert_close(end(tmp_path), end(four), **EXACT)


@pytest.mark.slow
def test_all_skip_a_step_if_the_loss_of_one_is_not_finite(tmp_path):
    options = {'model.nan_at': 2, 'model.nan_in': 1, 'train_cfg.max_iters': 3, 'default_hooks.checkpoint.interval': 1}
    trained(2, tmp_path, strategy={}, options=options)
    first, skipped, last = (state(tmp_path / f'iter_{step}.pth') for step in (1, 2, 3))
    for key in ('weights', 'optimizer'):
        assert_close(first[key], skipped[key], rtol=0, atol=0)
    assert (skipped['weights']['head.weight'] - last['weights']['head.weight']).abs().min() > 0


# --- broken folders ---


@pytest.mark.slow
@pytest.mark.parametrize(
    'change, message',
    [
        (lambda folder: next(folder.glob('__2*')).unlink(), r'damaged or not whole'),
        (lambda folder: (folder / '.metadata').write_bytes(b'no pickle'), r'it is damaged or not whole'),
        (lambda folder: (folder / 'rest.pth').unlink(), r'no such checkpoint: .*rest\.pth'),
    ],
)
def test_broken_folders_are_refused(change, message, four, tmp_path):
    folder = tmp_path / 'iter_2.pth'
    shutil.copytree(four / 'iter_2.pth', folder)
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_from_file(str(folder))
