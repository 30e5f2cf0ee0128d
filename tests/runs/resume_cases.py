"""A training that is killed and resumed ends as one that never stopped, bit for bit, whenever the kill comes."""

import errno
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch._dynamo  # once here instead of in every child
import toy_training
from mmengine.config import Config
from mmengine.hooks import EarlyStoppingHook, EMAHook
from mmengine.runner import Runner
from toy_training import ToyMetric, ToyModel, final_state, toy_config

from vitplug.errors.stops import TrainingStopped
from vitplug.files import atomic as atomic_files
from vitplug.files.atomic import AtomicBackend, remove_partial_files
from vitplug.runs.hooks import checkpoint as checkpoint_module
from vitplug.runs.hooks.checkpoint import RemovesLater

KINDS = ('epochs', 'iterations')
CRASHED = 99


def in_child(function, *args):
    """Runs a function in a forked process and returns its exit status, -9 for a kill."""

    def run():
        Config.pretty_text = ''  # mmengine formats the config for every checkpoint, which takes half of the time here
        try:
            function(*args)
        except TrainingStopped as stop:
            Path(os.environ['TOY_MESSAGE']).write_text(str(stop))
            os._exit(stop.status)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(CRASHED)
        os._exit(0)

    process = multiprocessing.get_context('fork').Process(target=run)
    process.start()
    # join() would wait for the loader's workers too, which see only after seconds that their training is dead.
    deadline = time.monotonic() + 60
    while process.exitcode is None:
        assert time.monotonic() < deadline, 'the training hangs'
        time.sleep(0.01)
    return process.exitcode


def train(work_dir, kind, resume=False, at=None, number=signal.SIGKILL, **settings):
    """Trains; `at` is (owner, name, n): the signal comes right before the n-th call of that function."""
    cfg = toy_config(work_dir, kind)
    cfg.resume = resume
    cfg.merge_from_dict(settings)
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


@pytest.fixture(autouse=True)
def message_file(tmp_path, monkeypatch):
    """Where a training that stops by itself leaves its message."""
    monkeypatch.setenv('TOY_MESSAGE', str(tmp_path / 'message'))
    return tmp_path / 'message'


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
    assert checkpoints(work_dir) == checkpoints(uninterrupted)


def checkpoints(work_dir):
    return sorted(path.name for path in Path(work_dir).iterdir() if 'pth' in path.name)


def assert_last_checkpoint_is_whole(work_dir):
    note = Path(work_dir, 'last_checkpoint')
    if note.exists():
        torch.load(note.read_text(), weights_only=False)


# The n-th call of a function that does its work at the moment we want. A training of either kind writes about five
# checkpoints, and a file `last_checkpoint` after each.
MOMENTS = {
    'before the first checkpoint': (ToyModel, 'train_step', 3),
    'between checkpoints': (ToyModel, 'train_step', 14),
    'in a validation': (ToyModel, 'val_step', 3),
    'while a metric is computed': (ToyMetric, 'compute_metrics', 1),
    'before a rename': (atomic_files.os, 'replace', 3),
    'between checkpoint and last_checkpoint': (AtomicBackend, 'put_text', 3),
    'before old ones are removed': (RemovesLater, 'remove_now', 4),
    'before the averaged weights': (EMAHook, 'after_train_iter', 17),
}


QUICK = ('between checkpoints', 'in a validation', 'before a rename')


@pytest.mark.parametrize(
    'moment', [pytest.param(moment, marks=[] if moment in QUICK else pytest.mark.slow) for moment in MOMENTS]
)
def test_killed_training_resumes_exactly(tmp_path, kind, uninterrupted, moment):
    work_dir = tmp_path / 'work'
    assert in_child(train, work_dir, kind, False, MOMENTS[moment]) == -signal.SIGKILL
    assert_last_checkpoint_is_whole(work_dir)
    assert in_child(train, work_dir, kind, True) == 0
    assert_ends_alike(work_dir, uninterrupted)


def test_accumulated_gradients_are_resumed(tmp_path):
    settings = {'optim_wrapper.accumulative_counts': 3}
    killed, whole = tmp_path / 'killed', tmp_path / 'whole'

    def run(work_dir, *args):
        train(work_dir, 'iterations', *args, **settings)

    assert in_child(run, whole) == 0
    assert in_child(run, killed, False, (ToyModel, 'train_step', 14)) == -signal.SIGKILL
    assert in_child(run, killed, True) == 0
    assert_ends_alike(killed, whole)


# --- early stopping ---

# Nothing is better than the first result by so much: the fourth validation ends the training.
EARLY = dict(type='EarlyStoppingHook', monitor='score', rule='greater', patience=3, min_delta=1000.0)
LONG = {
    'epochs': {'train_cfg.max_epochs': 12, 'train_cfg.val_interval': 1},
    'iterations': {'train_cfg.max_iters': 60, 'train_cfg.val_interval': 6},
}


def train_early(work_dir, kind, *args, hook=EARLY, **settings):
    train(work_dir, kind, *args, **LONG[kind], custom_hooks=[hook], **settings)


@pytest.fixture(scope='module')
def stopped_early(kind, tmp_path_factory):
    """The end of a training that nothing disturbed, but early stopping."""
    work_dir = tmp_path_factory.mktemp(f'early_{kind}')
    assert in_child(train_early, work_dir, kind) == 0
    assert max(metrics(work_dir)) == (4 if kind == 'epochs' else 24)
    return work_dir


KILL, TERM = signal.SIGKILL, signal.SIGTERM
EARLY_MOMENTS = {
    'after a decision': (checkpoint_module.CheckpointHook, 'after_val_epoch', 3, KILL),
    'asked after a decision': (checkpoint_module.CheckpointHook, 'after_val_epoch', 3, TERM),
    'between two decisions': (ToyModel, 'train_step', 20, KILL),
    'asked before the last decision': (EarlyStoppingHook, 'after_val_epoch', 4, TERM),
    'after the last decision': (checkpoint_module.CheckpointHook, 'after_val_epoch', 4, KILL),
    'asked after the last decision': (checkpoint_module.CheckpointHook, 'after_val_epoch', 4, TERM),
}


@pytest.mark.parametrize('moment', EARLY_MOMENTS)
def test_early_stopping_is_resumed_exactly(tmp_path, kind, stopped_early, moment):
    *at, number = EARLY_MOMENTS[moment]
    status = -9 if number == KILL else 75
    assert in_child(train_early, tmp_path, kind, False, at, number) == status
    assert in_child(train_early, tmp_path, kind, True) == 0
    assert metrics(tmp_path) == metrics(stopped_early)
    if 'interrupted.pth' not in checkpoints(tmp_path):  # after which no regular one is due
        assert_ends_alike(tmp_path, stopped_early)


def test_early_stopping_with_more_patience_goes_on(tmp_path, kind):
    assert in_child(train_early, tmp_path, kind) == 0
    assert in_child(lambda: train_early(tmp_path, kind, True, hook=dict(EARLY, patience=5))) == 0
    assert max(metrics(tmp_path)) == (6 if kind == 'epochs' else 36)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path, kind, uninterrupted):
    work_dir = tmp_path / 'work'
    for resume, moment in [(False, 'between checkpoints'), (True, 'before a rename'), (True, 'in a validation')]:
        assert in_child(train, work_dir, kind, resume, MOMENTS[moment]) == -signal.SIGKILL
    assert in_child(train, work_dir, kind, True) == 0
    assert_ends_alike(work_dir, uninterrupted)


@pytest.mark.parametrize('settings', [{'train_dataloader.num_workers': 0, 'train_dataloader.persistent_workers': False},
                                      {'train_dataloader.num_workers': 3}], ids=['none', 'three'])  # fmt: skip
def test_number_of_workers_changes_nothing(tmp_path, kind, uninterrupted, settings):
    in_child(lambda: train(tmp_path / 'work', kind, **settings))
    assert_ends_alike(tmp_path / 'work', uninterrupted)


def test_finished_training_resumes_to_the_same(tmp_path, kind, uninterrupted):
    assert in_child(train, tmp_path / 'work', kind) == 0
    assert in_child(train, tmp_path / 'work', kind, True) == 0
    assert_ends_alike(tmp_path / 'work', uninterrupted)


def validated(work_dir):
    """The iteration of each checkpoint, and that of the validation that it names."""
    states = [torch.load(path, weights_only=False) for path in Path(work_dir).glob('*.pth')]
    info = [state['message_hub']['runtime_info'] for state in states]
    return {state['meta']['iter']: one.get('validated_iter') for state, one in zip(states, info, strict=True)}


def test_checkpoints_name_the_last_validation(tmp_path, kind, monkeypatch):
    """The last one its own, which came after it; a finished training that is resumed has nothing left to do."""
    assert in_child(train, tmp_path, kind) == 0
    # Validated after epochs 2 and 4 of 6 iterations, and after iterations 8, 16 and 22.
    named = validated(tmp_path)
    last = max(named)
    assert last == named[last] == (24 if kind == 'epochs' else 22)
    assert all(before is None or before <= iteration for iteration, before in named.items())
    monkeypatch.setattr(ToyModel, 'val_step', None)
    assert in_child(train, tmp_path, kind, True) == 0


def test_a_note_that_cannot_be_written_leaves_the_training_complete(tmp_path, kind):
    def full_disk_at_the_end():
        write, written = AtomicBackend.put, []

        def put(self, content, path):
            written.append(Path(path).name)
            if written.count('epoch_4.pth') == 2:
                raise OSError(errno.ENOSPC, 'No space left on device')
            return write(self, content, path)

        AtomicBackend.put = put
        train(tmp_path, kind)

    assert in_child(full_disk_at_the_end) == 0
    if kind == 'epochs':
        assert validated(tmp_path)[24] == 12


@pytest.mark.parametrize(
    'moment',
    [
        'in a validation',
        *(
            pytest.param(moment, marks=pytest.mark.slow)
            for moment in ('between checkpoints', 'while a metric is computed')
        ),
    ],
)
def test_sigterm_saves_and_exits_with_its_own_status(tmp_path, kind, uninterrupted, message_file, moment):
    work_dir = tmp_path / 'work'
    assert in_child(train, work_dir, kind, False, MOMENTS[moment], signal.SIGTERM) == 75
    assert 'SIGTERM' in message_file.read_text() and '--resume' in message_file.read_text()
    assert_last_checkpoint_is_whole(work_dir)
    assert in_child(train, work_dir, kind, True) == 0
    assert_ends_alike(work_dir, uninterrupted)
    assert 'interrupted.pth' not in checkpoints(work_dir)


@pytest.mark.parametrize('step', (1, 6, 7))
def test_sigterm_at_any_iteration_loses_none(tmp_path, kind, step):
    """The first one, the last one of an epoch, and the first one of the next."""
    at = (ToyModel, 'train_step', step)
    assert in_child(train, tmp_path, kind, False, at, signal.SIGTERM) == 75
    assert final_state(tmp_path)['position'][1] == step


def test_seed_that_mmengine_drew_is_kept(tmp_path, kind):
    """Without a seed in the config the sampler's order is the first run's too."""

    def run(resume, at):
        cfg = toy_config(tmp_path, kind)
        cfg.randomness = dict(seed=None)
        cfg.resume = resume
        if at:
            raise_signal_before(*at, signal.SIGKILL)
        Runner.from_cfg(cfg).train()

    assert in_child(run, False, (ToyModel, 'val_step', 1)) == -signal.SIGKILL
    state = torch.load(Path(tmp_path, 'last_checkpoint').read_text(), weights_only=False)
    assert in_child(run, True, None) == 0
    whole = tmp_path / 'whole'
    assert in_child(lambda: train(whole, kind, randomness=dict(seed=state['meta']['seed']))) == 0
    assert_equal(final_state(tmp_path), final_state(whole))


# --- writing ---


def test_writing_replaces_as_a_whole(tmp_path):
    backend, path = AtomicBackend(), tmp_path / 'folder' / 'a.pth'
    backend.put(b'first', path)
    backend.put_text('second', path)
    assert path.read_text() == 'second'
    assert [file.name for file in path.parent.iterdir()] == ['a.pth']


def test_failed_write_keeps_the_old_content(tmp_path):
    backend, path = AtomicBackend(), tmp_path / 'a.pth'
    backend.put(b'old', path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            backend.put(b'x' * 5000, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b'old' and [file.name for file in tmp_path.iterdir()] == ['a.pth']


def test_only_unfinished_checkpoints_are_cleared_away(tmp_path):
    for name in ('.epoch_1.pth.partial', 'epoch_1.pth', 'notes.partial', '.hidden'):
        (tmp_path / name).write_text('x')
    assert [path.name for path in remove_partial_files(tmp_path)] == ['.epoch_1.pth.partial']
    assert len(list(tmp_path.iterdir())) == 3


def test_full_disk_stops_with_the_last_good_checkpoint(tmp_path, kind, message_file):
    def full_disk():
        write, written = AtomicBackend.write, []

        def limited(self, path, content):
            written.append(path)
            if len(written) > 3:  # the announcement of the first, the first, the note of it
                path.write_bytes(content[: len(content) // 2])
                raise OSError(errno.ENOSPC, 'No space left on device')
            write(self, path, content)

        AtomicBackend.write = limited
        train(tmp_path, kind)

    assert in_child(full_disk) == 74
    message, good = message_file.read_text(), Path(tmp_path, 'last_checkpoint').read_text()
    assert 'No space left on device' in message and good in message and '--resume' in message
    assert_last_checkpoint_is_whole(tmp_path)
    assert not list(tmp_path.glob('.*partial'))
    assert in_child(train, tmp_path, kind, True) == 0


def test_other_backends_are_left_alone():
    hook = checkpoint_module.CheckpointHook(backend_args=dict(backend='petrel'))
    assert hook.backend_args == dict(backend='petrel')
    assert checkpoint_module.CheckpointHook(out_dir='s3://bucket').backend_args is None


# --- real processes ---


@pytest.mark.slow
def test_kill_from_outside(tmp_path, kind, uninterrupted):
    command = [sys.executable, toy_training.__file__, str(tmp_path / 'work'), kind]
    env = {**os.environ, 'OMP_NUM_THREADS': '1'}
    victim = subprocess.Popen([*command, '--slow-writer'], env=env)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list((tmp_path / 'work').glob('.epoch_[23].pth.partial')) and not list(
        (tmp_path / 'work').glob('.iter_1*.partial')
    ):  # fmt: skip
        time.sleep(0.02)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    assert list((tmp_path / 'work').glob('.*.partial'))
    subprocess.run([*command, '--resume'], env=env, check=True, timeout=120)
    assert_ends_alike(tmp_path / 'work', uninterrupted)
