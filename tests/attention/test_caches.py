"""No cache grows with the number of input sizes."""

import functools
import gc
from collections import deque

import pytest
import torch
from cases import images, randomize, swin_padding_small_maps, vit

HOSTS = {'vit': (vit, 8), 'swin': (swin_padding_small_maps, 4)}
TOGETHER = [
    dict(type='ContextBroadcast', scaled=True),
    dict(type='RelPosMlp', hidden_dims=8),
    dict(type='GaussianAttentionBias', coord='relative'),
    dict(type='ResidualAttention', window_align='parity', low_memory=False),
    dict(type='BroadAttention'),
    dict(type='Refiner'),
]
SIZES = [(h, w) for h in range(2, 14) for w in range(2, 14)]
WARM_UP, LEAST = 60, 20


def entries():
    """The containers of the process, which keep what they are alive, and the entries of vitplug's cached functions."""
    gc.collect()
    kinds = (dict, list, set, deque)
    held = {id(each): (each, len(each)) for each in gc.get_objects() if issubclass(type(each), kinds)}
    cached = [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]
    sizes = {each: each.cache_info().currsize for each in cached if (each.__module__ or '').startswith('vitplug')}
    return held, sizes


@pytest.mark.slow
def test_nothing_grows_with_the_number_of_input_sizes():
    models = [(randomize(build(plugs=[dict(plug) for plug in TOGETHER])), patch) for build, patch in HOSTS.values()]
    for count, (h, w) in enumerate(SIZES):
        for model, patch in models:
            loss = sum(out.square().mean() for out in model(images(h * patch, w * patch, batch=1, dtype=torch.float32)))
            loss.backward()
            model.zero_grad()
        if count == WARM_UP:
            held, cached = entries()
    assert [type(each) for each, size in held.values() if len(each) >= size + LEAST] == []
    assert [each for each, size in cached.items() if each.cache_info().currsize >= size + LEAST] == []
