"""The names of a later torch: those it has by itself, and what stands in for them on an older one."""

import copy
import dataclasses
from dataclasses import dataclass

import pytest
import torch
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


@dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor | None = None
    scale: float = 1.0


def test_replaced_fields_are_those_of_the_library():
    pair = Pair(torch.ones(2), scale=3.0)
    for changes in ({}, dict(second=torch.zeros(1)), dict(first=torch.zeros(3), scale=0.5)):
        replaced, expected = compat.replace(pair, **changes), dataclasses.replace(pair, **changes)
        assert all(getattr(replaced, field) is getattr(expected, field) for field in ('first', 'second', 'scale'))
    with pytest.raises(TypeError, match='third'):
        compat.replace(pair, third=1)


def test_compiler_follows_replaced_fields():
    def doubled(x):
        return compat.replace(Pair(x, x), second=2 * x).second

    x = torch.ones(2)
    assert torch.equal(torch.compile(doubled, fullgraph=True, backend='eager')(x), 2 * x)
