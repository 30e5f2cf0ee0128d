"""States of hooks, such as the count of early stopping, that a resumed training goes on with."""

import copy
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.hooks import CheckpointHook, EarlyStoppingHook, Hook
from torch import Tensor

from vitplug.checkpoints.files import some_of
from vitplug.errors.stops import CheckpointNotRead
from vitplug.registry import HOOKS

# The entry of a checkpoint.
STATES = 'hook_states'
# Packages whose hooks keep what they need in a checkpoint by themselves, or find it again by the epoch.
KNOWN = ('vitplug', 'mmengine', 'mmcv', 'mmpretrain', 'mmseg', 'mmdet')
# Settings by which early stopping measures, and by which it stops.
MEASURED_BY = ('monitor', 'rule')
STOPPED_BY = (*MEASURED_BY, 'patience', 'stopping_threshold', 'min_delta', 'check_finite')


@HOOKS.register_module()
class HookStatesHook(Hook):
    """Saves the states of hooks in checkpoints and gives them back on resume.

    - mmengine's `EarlyStoppingHook`: its best score, its count, and whether it has stopped the training. It decides
      before `CheckpointHook` and `InterruptionHook` save what was validated.
    - Hooks with `state_dict` and `load_state_dict`; a state is made of numbers, texts, tensors, and lists and dicts of
      them.
    - Other hooks of your own whose plain attributes change during the training, and that do not write into checkpoints
      themselves, are named once: a resumed training begins anew with them.

    Raises:
        CheckpointNotRead: if a hook refuses its state.
    """

    priority = 'LOWEST'

    def __init__(self):
        self.before: dict[str, dict[str, Any]] | None = None
        self.named: set[str] = set()

    def before_run(self, runner) -> None:
        """Lets early stopping decide before a checkpoint holds what was validated."""
        early = [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]
        others = [hook for hook in runner.hooks if hook not in early]
        position = next((n for n, hook in enumerate(others) if isinstance(hook, CheckpointHook)), len(others))
        # Another list: mmengine is going through the one that there is.
        runner._hooks = [*others[:position], *early, *others[position:]]

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Gives hooks their states back, and says which have none."""
        if not runner._resume:
            return
        given = checkpoint.get(STATES)
        given = dict(given) if isinstance(given, Mapping) else {}
        for name, hook in _stateful(runner.hooks):
            if name not in given:
                runner.logger.warning(f'The checkpoint has no state of {name}, which begins anew')
                continue
            try:
                _load(hook, given.pop(name), runner)
            except Exception as error:
                raise CheckpointNotRead(
                    f'the state of {name} in the checkpoint does not fit ({type(error).__name__}: {error}): go on with '
                    'the hook that the training had, or without it'
                ) from error
        if given:
            runner.logger.warning(
                f'The checkpoint has states of hooks that this training has not: {some_of(sorted(map(str, given)))}'
            )

    def before_train_epoch(self, runner) -> None:
        """Notes the attributes of hooks whose states nobody saves."""
        if self.before is None:
            self.before = {name: copy.deepcopy(_plain_attributes(hook)) for name, hook in _unknown(runner.hooks)}

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Adds the states."""
        states = {}
        for name, hook in _stateful(runner.hooks):
            state = _state_of(hook, runner)
            if _is_plain(state):
                states[name] = state
            else:
                self._name_once(runner, name, 'its state_dict holds other things than numbers, texts and tensors')
        checkpoint[STATES] = states
        for name, hook in _unknown(runner.hooks):
            now = _plain_attributes(hook)
            before = (self.before or {}).get(name, now)
            # In lists, because NaN is not equal to itself.
            changed = [key for key in now if [before.get(key, now)] != [now[key]]]
            if changed:
                self._name_once(runner, name, f'{", ".join(changed[:5])} changed, and it has no state_dict')

    def _name_once(self, runner, name: str, reason: str) -> None:
        if name not in self.named:
            self.named.add(name)
            runner.logger.warning(
                f'{name} cannot be resumed, a training that goes on from a checkpoint begins anew with it: {reason}; '
                'give it the methods state_dict and load_state_dict'
            )


# --- which hooks ---


def _named(hooks: list[Hook]) -> Iterator[tuple[str, Hook]]:
    """Hooks by their class, and their number where there are several."""
    seen = Counter()
    for hook in hooks:
        kind = type(hook).__name__
        seen[kind] += 1
        yield kind if seen[kind] == 1 else f'{kind}.{seen[kind]}', hook


def _stateful(hooks: list[Hook]) -> Iterator[tuple[str, Hook]]:
    """The hooks whose states are saved here."""
    for name, hook in _named(hooks):
        if isinstance(hook, EarlyStoppingHook) or _has_methods(hook):
            yield name, hook


def _has_methods(hook: Hook) -> bool:
    return all(callable(getattr(hook, method, None)) for method in ('state_dict', 'load_state_dict'))


def _unknown(hooks: list[Hook]) -> Iterator[tuple[str, Hook]]:
    """The hooks whose states nobody saves: those that neither a library brings nor read checkpoints themselves."""
    stateful = {id(hook) for _, hook in _stateful(hooks)}
    for name, hook in _named(hooks):
        bases = [base for base in type(hook).__mro__ if base not in (Hook, object)]
        known = any(base.__module__.partition('.')[0] in KNOWN for base in bases)
        reads = type(hook).after_load_checkpoint is not Hook.after_load_checkpoint
        if id(hook) not in stateful and not known and not reads:
            yield name, hook


# --- states ---


def _state_of(hook: Hook, runner) -> Any:
    if _has_methods(hook):
        return hook.state_dict()
    return dict(
        best_score=float(hook.best_score),
        wait_count=int(hook.wait_count),
        stopped=bool(runner.train_loop.stop_training),
        settings={name: getattr(hook, name, None) for name in STOPPED_BY},
    )


def _load(hook: Hook, state: Any, runner) -> None:
    if _has_methods(hook):
        hook.load_state_dict(state)
        return
    best, count, before = float(state['best_score']), state['wait_count'], state['settings']
    if type(count) is not int or count < 0:
        raise ValueError(f'wait_count = {count!r:.60}: expected a number of validations')
    changed = [name for name in STOPPED_BY if before[name] != getattr(hook, name, None)]
    if not {*changed}.isdisjoint(MEASURED_BY):
        runner.logger.warning(f'Early stopping begins anew: it measures otherwise ({", ".join(changed)} changed)')
        return
    hook.best_score, hook.wait_count = best, count
    if state['stopped'] and not changed:
        runner.train_loop.stop_training = True


def _plain_attributes(hook: Hook) -> dict[str, Any]:
    return {name: value for name, value in vars(hook).items() if _is_plain(value, tensors=False)}


def _is_plain(value: Any, tensors: bool = True) -> bool:
    """Whether a value is made of what a checkpoint may hold."""
    if isinstance(value, Mapping):
        return type(value) in (dict, OrderedDict) and all(
            _is_plain(item, tensors) for pair in value.items() for item in pair
        )
    if type(value) in (list, tuple):
        return all(_is_plain(item, tensors) for item in value)
    return value is None or type(value) in (bool, int, float, str) or (tensors and type(value) is Tensor)
