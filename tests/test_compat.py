"""The names of a later torch: those it has by itself, and what stands in for them on an older one."""

import copy
import dataclasses
import importlib.util
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim.scheduler import StepLR
from torch import nn

from vitplug import compat

# Without `torch.compiler.is_compiling`, which a later torch's older name calls.
LATER = ((torch.amp, 'is_autocast_available'), (nn.Module, 'register_load_state_dict_pre_hook'))


@pytest.fixture(params=['this torch', 'an older one'])
def names(request, monkeypatch):
    """The module as it is, and as a torch without the later names has it."""
    if request.param == 'this torch':
        return compat
    for owner, name in LATER:
        monkeypatch.delattr(owner, name, raising=False)
    spec = importlib.util.spec_from_file_location('older_compat', compat.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compiled_code_knows_that_it_is(names):
    def forward(x):
        return x + 1 if names.is_compiling() else x

    x = torch.zeros(2)
    assert torch.equal(forward(x), x)
    assert torch.equal(torch.compile(forward, fullgraph=True, backend='eager')(x), x + 1)


def test_autocast(names):
    assert names.is_autocast_available('cpu') and not names.is_autocast_available('meta')
    assert not names.is_autocast_enabled('cpu')
    with torch.autocast('cpu', torch.bfloat16):
        assert names.is_autocast_enabled('cpu') and not names.is_autocast_enabled('cuda')


def test_pre_hooks_get_the_module_that_loads(names):
    module, seen = nn.Linear(2, 2), []
    names.register_load_state_dict_pre_hook(module, lambda module, state, prefix, *_: seen.append((module, prefix)))
    for root in (nn.Sequential(module), copy.deepcopy(nn.Sequential(module))):
        root.load_state_dict(root.state_dict())
        assert seen.pop() == (root[0], '0.')


@dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor | None = None
    scale: float = 1.0


@pytest.mark.parametrize('names', ['this torch'], indirect=True)
def test_replaced_fields_are_those_of_the_library(names):
    pair = Pair(torch.ones(2), scale=3.0)
    for changes in ({}, dict(second=torch.zeros(1)), dict(first=torch.zeros(3), scale=0.5)):
        replaced, expected = names.replace(pair, **changes), dataclasses.replace(pair, **changes)
        assert all(getattr(replaced, field) is getattr(expected, field) for field in ('first', 'second', 'scale'))
    with pytest.raises(TypeError, match='third'):
        names.replace(pair, third=1)


@pytest.mark.parametrize('can_compile', sorted({compat.CAN_COMPILE, False}))
def test_steps_are_told_once_the_compiler_was_used(can_compile, monkeypatch):
    monkeypatch.setattr(compat, 'CAN_COMPILE', can_compile)
    torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(2))
    parameter, seen = nn.Parameter(torch.ones(1)), []
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    compat.register_step_pre_hook(optimizer, lambda *step: seen.append((*step, parameter.item())))
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    for expected in (0.5, 0.25):
        parameter.grad = torch.ones(1)
        before = parameter.item()
        optimizer.step()
        scheduler.step()
        assert seen.pop() == (optimizer, (optimizer,), {}, before) and not seen
        assert parameter.item() == expected


def test_a_hook_before_the_steps_of_an_optimizer_without_hooks():
    """As DeepSpeed's are."""
    seen = []
    optimizer = SimpleNamespace(step=lambda *args, **kwargs: seen.append((args, kwargs)))
    compat.register_step_pre_hook(optimizer, lambda *step: seen.append(step))
    optimizer.step(1, closure=2)
    assert seen == [(optimizer, (optimizer, 1), {'closure': 2}), ((1,), {'closure': 2})]
