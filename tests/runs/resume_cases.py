"""A training that is killed and resumed ends as one that never stopped, bit for bit, whenever the kill comes."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch._dynamo  # once here instead of in every child
from mmengine.config import Config
from mmengine.hooks import EMAHook
from mmengine.runner import Runner
from toy_training import ToyMetric, ToyModel, final_state, toy_config

from vitplug.errors import TrainingStopped
from vitplug.files import whole
from vitplug.runs.hooks import checkpoint as checkpoints
from vitplug.runs.hooks.checkpoint import CheckpointHook, WholeFiles, choose_start, last_checkpoint

KINDS = ('epochs', 'iterations')
KILL, TERM = signal.SIGKILL, signal.SIGTERM
CRASHED = 99


def in_child(function, *args):
    """Runs a function in a forked process and returns its exit status, -9 for a kill, and 1 for a stop."""

    def run():
        Config.pretty_text = ''  # mmengine formats the config for every checkpoint, which takes half of the time here
        try:
            function(*args)
        except TrainingStopped:
            os._exit(1)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(CRASHED)
        os._exit(0)

    process = multiprocessing.get_context('fork').Process(target=run)
    process.start()
    # join() would wait for the loader's workers too, which see only after seconds that their training is dead.
    deadline = time.monotonic() + 180
    while process.exitcode is None:
        assert time.monotonic() < deadline, 'the training hangs'
        time.sleep(0.01)
    return process.exitcode


def train(work_dir, kind, resume=False, at=None, number=KILL, **settings):
    """Trains; `at` is (owner, name, n): the signal comes right before the n-th call of that function."""
    cfg = toy_config(work_dir, kind)
    cfg.merge_from_dict(dict(settings, resume='auto' if resume else False))
    choose_start(cfg)
    if at is not None:
        raise_signal_before(*at, number)
    Runner.from_cfg(cfg).train()


def raise_signal_before(owner, name, n, number):
    original, calls = getattr(owner, name), []

    def counted(*args, **kwargs):
        calls.append(name)
        if len(calls) == n and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), number)
        return original(*args, **kwargs)

    setattr(owner, name, counted)


@pytest.fixture(scope='module', params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope='module')
def uninterrupted(kind, tmp_path_factory):
    """The end of a training that nothing disturbed."""
    work_dir = tmp_path_factory.mktemp(kind)
    assert in_child(train, work_dir, kind) == 0
    return work_dir


def assert_equal(ours, theirs, where='state'):
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for name in ours:
            assert_equal(ours[name], theirs[name], f'{where}.{name}')
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(one, other, f'{where}[{i}]')
    elif isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), where
    else:
        assert ours == theirs, where


def metrics(work_dir):
    """Every validation's result by its step; what a resumed training validates again has to come out the same."""
    found = {}
    for path in Path(work_dir).glob('*/vis_data/scalars.json'):
        for record in map(json.loads, path.read_text().splitlines()):
            if 'score' in record:
                assert found.setdefault(record['step'], record['score']) == record['score']
    return found


def assert_ends_alike(work_dir, uninterrupted):
    assert_equal(final_state(work_dir), final_state(uninterrupted))
    assert metrics(work_dir) == metrics(uninterrupted)


# The n-th call of a function that does its work at the moment we want. A training of either kind writes about five
# checkpoints, and a file `last_checkpoint` after each.
MOMENTS = {
    'before the first step': (ToyModel, 'train_step', 1),
    'before the first checkpoint': (ToyModel, 'train_step', 3),
    'behind the first checkpoint': (WholeFiles, 'flush', 1),
    'between checkpoints': (ToyModel, 'train_step', 14),
    'in a validation': (ToyModel, 'val_step', 3),
    'while a metric is computed': (ToyMetric, 'compute_metrics', 1),
    'before a rename': (whole.os, 'replace', 3),
    'before the first removal': (checkpoints, 'discard', 3),
    'before the averaged weights': (EMAHook, 'after_train_iter', 17),
    'behind the last step': (CheckpointHook, 'after_train', 1),
}


@pytest.mark.parametrize('moment', MOMENTS)
def test_killed_training_resumes_exactly(tmp_path, kind, uninterrupted, moment):
    assert in_child(train, tmp_path, kind, False, MOMENTS[moment]) == -KILL
    last = last_checkpoint(tmp_path)
    assert last is None or torch.load(last, weights_only=False)
    assert in_child(train, tmp_path, kind, True) == 0
    assert_ends_alike(tmp_path, uninterrupted)


def test_without_a_note_the_newest_whole_checkpoint_counts(tmp_path):
    for age, name in enumerate(('torn.pth', 'epoch_2.pth', 'epoch_10.pth', 'best_score_epoch_1.pth')):
        torch.save({}, tmp_path / name)
        os.utime(tmp_path / name, (0, 1e9 - age))
    (tmp_path / 'torn.pth').write_bytes((tmp_path / 'torn.pth').read_bytes()[:-30])
    os.utime(tmp_path / 'torn.pth', (0, 2e9))
    cfg = Config(dict(work_dir=str(tmp_path), resume='auto'))
    for note in (None, '', 'gone/epoch_1.pth'):
        if note is not None:
            (tmp_path / 'last_checkpoint').write_text(note)
        assert last_checkpoint(tmp_path) == tmp_path / 'epoch_2.pth'
    for name in ('epoch_2.pth', 'epoch_10.pth'):
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match='none of its checkpoints is whole'):
        choose_start(cfg)
    (tmp_path / 'torn.pth').unlink()
    choose_start(cfg)
    assert (cfg.resume, cfg.load_from) == (False, None)


def test_killed_again_and_again(tmp_path, kind, uninterrupted):
    for resume, moment in [(False, 'between checkpoints'), (True, 'before a rename'), (True, 'in a validation')]:
        assert in_child(train, tmp_path, kind, resume, MOMENTS[moment]) == -KILL
    assert in_child(train, tmp_path, kind, True) == 0
    assert_ends_alike(tmp_path, uninterrupted)


def test_number_of_workers_changes_nothing(tmp_path, kind, uninterrupted):
    settings = {'train_dataloader.num_workers': 0, 'train_dataloader.persistent_workers': False}
    assert in_child(lambda: train(tmp_path, kind, **settings)) == 0
    assert_ends_alike(tmp_path, uninterrupted)


def test_one_checkpoint_is_left_where_one_is_asked_for(tmp_path, kind):
    assert in_child(lambda: train(tmp_path, kind, **{'default_hooks.checkpoint.max_keep_ckpts': 1})) == 0
    assert len([path for path in tmp_path.glob('*.pth') if not path.name.startswith('best_')]) == 1


def test_the_best_checkpoint_goes_when_the_next_one_is_there(tmp_path, kind):
    seen, discard = [], checkpoints.discard

    def noted(path):
        if path.name.startswith('best_'):
            seen.append(len(list(tmp_path.glob('best_*'))))
        discard(path)

    def watched():
        checkpoints.discard = noted
        train(tmp_path, kind)
        assert seen and set(seen) == {2}

    assert in_child(watched) == 0


def test_another_backend_writes_checkpoints(tmp_path):
    backend = {'default_hooks.checkpoint.backend_args': dict(backend='local')}
    assert in_child(lambda: train(tmp_path, 'iterations', **backend)) == 0
    assert last_checkpoint(tmp_path).is_file()


@pytest.mark.parametrize(('moment', 'number'), [('between checkpoints', TERM), ('in a validation', signal.SIGINT)])
def test_signal_saves_and_ends(tmp_path, kind, uninterrupted, moment, number):
    assert in_child(train, tmp_path, kind, False, MOMENTS[moment], number) == 1
    assert in_child(train, tmp_path, kind, True) == 0
    assert_ends_alike(tmp_path, uninterrupted)
    assert not list(tmp_path.glob('interrupted*'))


@pytest.mark.parametrize('step', (1, 6, 7))
def test_signal_at_any_iteration_loses_none(tmp_path, step):
    """The first one, the last one of an epoch, and the first one of the next."""
    assert in_child(train, tmp_path, 'epochs', False, (ToyModel, 'train_step', step), TERM) == 1
    assert torch.load(last_checkpoint(tmp_path), weights_only=False)['meta']['iter'] == step


def test_signal_waits_for_the_step_of_accumulated_gradients(tmp_path):
    settings = {'optim_wrapper.accumulative_counts': 4}
    whole, stopped = tmp_path / 'whole', tmp_path / 'stopped'
    assert in_child(lambda: train(whole, 'iterations', **settings)) == 0
    at = (ToyModel, 'train_step', 14)
    assert in_child(lambda: train(stopped, 'iterations', False, at, TERM, **settings)) == 1
    assert torch.load(last_checkpoint(stopped), weights_only=False)['meta']['iter'] == 16
    assert in_child(lambda: train(stopped, 'iterations', True, **settings)) == 0
    assert_ends_alike(stopped, whole)


def test_a_training_that_goes_on_elsewhere_removes_nothing_of_the_first(tmp_path):
    first, second = tmp_path / 'first', tmp_path / 'second'
    assert in_child(train, first, 'iterations') == 0
    files = sorted(first.glob('*.pth'))
    settings = {'train_cfg.max_iters': 40, 'load_from': str(last_checkpoint(first))}

    def elsewhere():
        cfg = toy_config(second, 'iterations')
        cfg.merge_from_dict(dict(settings, resume=True))
        choose_start(cfg)
        Runner.from_cfg(cfg).train()

    assert in_child(elsewhere) == 0
    assert sorted(first.glob('*.pth')) == files and len(list(second.glob('*.pth'))) >= 2
