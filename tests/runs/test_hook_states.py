"""What hooks remember over an interruption, and what is said about those that do not.

That early stopping ends a resumed training where it would have ended is in `resume_cases.py`.
"""

from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from toy_training import run_training, toy_config

from vitplug.checkpoints.safe_loading import load_safely
from vitplug.errors.stops import CheckpointNotRead
from vitplug.runs.hooks.hook_states import STATES

pytestmark = pytest.mark.integration

EARLY = dict(type='EarlyStoppingHook', monitor='score', rule='greater', patience=9, min_delta=1000.0)


class Counting(Hook):
    """Counts iterations; does not say so to checkpoints."""

    def __init__(self):
        self.count, self.seen, self.nothing = 0, {}, float('nan')

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.count += 1
        self.seen[batch_idx] = self.count


@HOOKS.register_module()
class ForgetfulHook(Counting):
    pass


@HOOKS.register_module()
class ConstantHook(Hook):
    def __init__(self):
        self.value, self.nothing = [1.0, 'a'], float('nan')


@HOOKS.register_module()
class WritingHook(Counting):
    """Takes care of itself."""

    def after_load_checkpoint(self, runner, checkpoint):
        self.count = checkpoint['counted']

    def before_save_checkpoint(self, runner, checkpoint):
        checkpoint['counted'] = self.count


@HOOKS.register_module()
class RememberingHook(Counting):
    def state_dict(self):
        return dict(count=self.count, mean=torch.ones(2), history=[(1, None), {'a': True}])

    def load_state_dict(self, state):
        assert torch.equal(state['mean'], torch.ones(2)) and list(state['history'][0]) == [1, None]
        self.count = state['count']


@HOOKS.register_module()
class OddHook(Counting):
    """Its state has what no checkpoint may hold."""

    def state_dict(self):
        return dict(count=self.count, where=Path('a'))

    def load_state_dict(self, state):
        raise AssertionError('never called')


def train(work_dir, *hooks, epochs=2, resume=False):
    cfg = toy_config(work_dir, 'epochs')
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.num_workers, loader.persistent_workers = 0, False
    cfg.train_cfg.max_epochs, cfg.resume, cfg.log_level = epochs, resume, 'INFO'
    cfg.custom_hooks = [hook if isinstance(hook, dict) else dict(type=hook) for hook in hooks]
    return run_training(cfg)


def hook_of(runner, name):
    return next(hook for hook in runner.hooks if type(hook).__name__ == name)


def last(work_dir):
    return Path(Path(work_dir, 'last_checkpoint').read_text())


def log_of(work_dir):
    return ''.join(path.read_text() for path in sorted(Path(work_dir).glob('*/*.log')))


def test_a_state_of_your_own_goes_on(tmp_path):
    train(tmp_path, 'RememberingHook', 'RememberingHook')
    runner = train(tmp_path, 'RememberingHook', 'RememberingHook', epochs=4, resume=True)
    found = [hook.count for hook in runner.hooks if type(hook).__name__ == 'RememberingHook']
    assert found == [runner.iter] * 2 == [24, 24]
    assert 'begins anew' not in log_of(tmp_path)


def test_hooks_that_forget_are_named_once_and_no_others(tmp_path):
    runner = train(tmp_path, 'ForgetfulHook', 'ConstantHook', 'WritingHook', 'RememberingHook', EARLY, epochs=4)
    told = [line for line in log_of(tmp_path).splitlines() if 'cannot be resumed' in line]
    assert len(told) == 1, told
    assert 'ForgetfulHook' in told[0] and 'count, seen' in told[0] and 'state_dict' in told[0]
    assert hook_of(runner, 'ForgetfulHook').count == 24


def test_a_state_that_no_checkpoint_may_hold_is_left_out_and_said(tmp_path):
    train(tmp_path, 'OddHook')
    assert 'OddHook' not in load_safely(last(tmp_path))[STATES]
    train(tmp_path, 'OddHook', epochs=3, resume=True)
    told = log_of(tmp_path)
    assert 'OddHook cannot be resumed' in told and 'has no state of OddHook, which begins anew' in told


def change_state(work_dir, change):
    content = torch.load(last(work_dir), weights_only=False)
    change(content)
    torch.save(content, last(work_dir))


def test_a_checkpoint_without_states_goes_on_and_says_so(tmp_path):
    train(tmp_path, EARLY)
    change_state(tmp_path, lambda content: content.pop(STATES))
    train(tmp_path, EARLY, epochs=3, resume=True)
    assert 'no state of EarlyStoppingHook, which begins anew' in log_of(tmp_path)


def test_states_of_hooks_that_are_gone_are_said(tmp_path):
    train(tmp_path, EARLY, 'RememberingHook')
    train(tmp_path, epochs=3, resume=True)
    assert 'states of hooks that this training has not: EarlyStoppingHook, RememberingHook' in log_of(tmp_path)


@pytest.mark.parametrize('state', [None, 3, {}, dict(best_score='x'), 'wait_count', 'settings'])
def test_a_state_of_anybody_is_refused_by_name(tmp_path, state):
    train(tmp_path, EARLY)

    def change(content):
        if isinstance(state, str):
            content[STATES]['EarlyStoppingHook'][state] = -1
        else:
            content[STATES]['EarlyStoppingHook'] = state

    change_state(tmp_path, change)
    with pytest.raises(CheckpointNotRead, match='state of EarlyStoppingHook in the checkpoint does not fit'):
        train(tmp_path, EARLY, epochs=3, resume=True)


def test_another_measure_begins_anew(tmp_path):
    """The best of one metric is none of another."""
    train(tmp_path, EARLY)
    runner = train(tmp_path, dict(EARLY, monitor='count'), epochs=4, resume=True)
    assert 'Early stopping begins anew: it measures otherwise (monitor changed)' in log_of(tmp_path)
    assert hook_of(runner, 'EarlyStoppingHook').best_score == 22


def test_more_patience_keeps_the_count(tmp_path):
    train(tmp_path, EARLY)
    change_state(tmp_path, lambda content: content[STATES]['EarlyStoppingHook'].update(wait_count=7, stopped=True))
    runner = train(tmp_path, dict(EARLY, patience=12), epochs=4, resume=True)
    assert runner.epoch == 4 and hook_of(runner, 'EarlyStoppingHook').wait_count >= 7
