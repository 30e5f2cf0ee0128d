"""No cache grows with the number of input sizes. `tests/soak/changing_shapes.py` is the long form of this."""

import random
import types
from functools import lru_cache

import pytest
import torch
from soak.changing_shapes import TOGETHER, Subject, run_through
from soak.memory import containers, grown, tensors

from vitplug.attention import layouts

SIZES = [(h, w) for h in range(2, 14) for w in range(2, 14)]
WARM_UP, LEAST = 60, 20


@pytest.mark.slow
def test_nothing_grows_with_the_number_of_input_sizes():
    models = [Subject(host, TOGETHER) for host in ('vit', 'swin')]
    for count in run_through(models, SIZES, random.Random(0)):
        if count == WARM_UP:
            warm, warm_tensors = containers(), tensors()
    assert grown(warm, LEAST) == []
    assert tensors() < warm_tensors + LEAST


@pytest.mark.slow
def test_caches_without_bound_are_found_wherever_they_are(monkeypatch):
    some = [layouts.WindowLayout(side, 8, 4, 2) for side in range(4, 4 + LEAST)]
    holder, module = torch.nn.Identity(), types.SimpleNamespace(__name__='some_module')
    holder.by_size, module.numbers = {}, {}
    endless = lru_cache(maxsize=None)(layouts._slots.__wrapped__)
    monkeypatch.setattr(layouts, '_slots', endless)
    before = containers()
    for layout in some:
        holder.by_size[layout] = layout.slots(torch.device('cpu'))
        module.numbers[layout.height] = layout.width
    found = '\n'.join(grown(before, LEAST))
    assert all(
        name in found for name in ('vitplug.attention.layouts._slots: 0 -> 20', '.by_size', 'some_module.numbers')
    )
