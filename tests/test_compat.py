"""The names of a later torch: those it has by itself, and what stands in for them on an older one."""

import copy

import pytest
from torch import nn

from vitplug import compat


@pytest.mark.parametrize('is_older', [False, True])
def test_pre_hooks_get_the_module_that_loads(is_older, monkeypatch):
    if is_older:
        monkeypatch.delattr(nn.Module, 'register_load_state_dict_pre_hook', raising=False)
    module, seen = nn.Linear(2, 2), []
    compat.register_load_state_dict_pre_hook(module, lambda module, state, prefix, *_: seen.append((module, prefix)))
    for root in (nn.Sequential(module), copy.deepcopy(nn.Sequential(module))):
        root.load_state_dict(root.state_dict())
        assert seen.pop() == (root[0], '0.')
