"""Sinks of made maps and values, counted query by query."""

import numpy as np
import pytest
import torch
from cases import images, randomize, swin, vit

from vitplug.lab.study.measures.sinks import find_sinks
from vitplug.lab.study.places import Place

SIZE = (40, 56)


def place_of(make, layer=0, size=SIZE):
    return Place.of(make(), layer, size)


def made(tokens, share, attention, sink=0):
    """Maps in which a share of the queries gives a key some attention, and the rest to all others alike."""
    maps = np.full((tokens, tokens), 1 / tokens)
    for query in range(round(share * tokens)):
        maps[query] = (1 - attention) / (tokens - 1)
        maps[query, sink] = attention
    return torch.from_numpy(maps)[None, None, None]


def values(tokens, sink=0, length=1.0, seed=0):
    v = np.random.default_rng(seed).normal(size=(tokens, 4))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    v[sink] *= length
    return torch.from_numpy(v)[None, None, None]


@pytest.mark.parametrize(
    ('share', 'attention', 'expected'), [(1, 0.5, True), (1, 0.49, False), (0.92, 0.9, True), (0.88, 0.9, False)]
)
def test_thresholds(share, attention, expected):
    place = place_of(vit)
    tokens = place.layout.grid.num_tokens
    found = find_sinks(made(tokens, share, attention, 7), values(tokens), place)
    assert found.is_sink.item() is expected and found.key.item() == 7
    mass = (round(share * tokens) * attention + (tokens - round(share * tokens)) / tokens) / tokens
    assert found.mass.item() == pytest.approx(mass)


@pytest.mark.parametrize(
    ('length', 'attention', 'kind'), [(0.1, 0.99, 'nop'), (1, 0.99, 'broadcast'), (0.3, 0.99, ''), (0.5, 0.5, '')]
)
def test_classes(length, attention, kind):
    """A short value is a NOP. A long one is a broadcast, unless the rest of the attention gives a high rank."""
    place = place_of(vit)
    tokens = place.layout.grid.num_tokens
    maps = made(tokens, 1, attention, 3)[0, 0, 0].numpy()
    for query in range(tokens):  # the rest of each query's attention on one key
        maps[query] = 0
        maps[query, (query + 5) % tokens if (query + 5) % tokens != 3 else 4] = 1 - attention
        maps[query, 3] = attention
    v = values(tokens, 3, length)
    found = find_sinks(torch.from_numpy(maps)[None, None, None], v, place)
    assert found.is_sink.item()
    assert (found.is_nop.item(), found.is_broadcast.item()) == (kind == 'nop', kind == 'broadcast')
    outputs = maps @ v[0, 0, 0].numpy()
    singular = np.linalg.svd(outputs, compute_uv=False)
    assert found.stable_rank.item() == pytest.approx((singular**2).sum() / singular[0] ** 2)
    assert found.value_ratio.item() == pytest.approx(length)


@torch.no_grad()
@pytest.mark.parametrize(('make', 'layer', 'size'), [(vit, 1, SIZE), (swin, 1, (36, 44))], ids=['vit', 'swin'])
def test_maps_of_a_model_without_padding(make, layer, size):
    """Each window and head by loops; padded slots of shifted windows count neither as queries nor as keys."""
    model = randomize(make()).double().eval()
    _, recorded = model.forward_intermediates(images(*size), ('probs', 'v'), layers=[layer])
    maps, v = recorded['probs'][layer], recorded['v'][layer]
    place = Place.of(model, layer, size)
    # Towards one key in some windows.
    maps = 0.45 * maps
    maps[..., 2] += 0.55
    found = find_sinks(maps, v, place)
    is_token = place.queries.is_token.numpy()
    assert make is vit or not is_token.all()
    for b, w, h in np.ndindex(*maps.shape[:3]):
        there = is_token[w]
        if not there.any():
            continue
        part, norms = maps[b, w, h].numpy()[there], v[b, w, h].norm(dim=-1).numpy()
        received = np.where(there, part.mean(0), -1)
        key = received.argmax()
        assert found.key[b, w, h] == key and found.mass[b, w, h] == pytest.approx(received[key])
        assert bool(found.is_sink[b, w, h]) == ((part[:, key] >= 0.5).mean() >= 0.9)
        others = sorted(norm for slot, norm in enumerate(norms) if there[slot] and slot != key)
        if others:
            assert found.value_ratio[b, w, h] == pytest.approx(norms[key] / others[(len(others) - 1) // 2])
        singular = np.linalg.svd(part @ v[b, w, h].numpy(), compute_uv=False)
        assert found.stable_rank[b, w, h] == pytest.approx((singular**2).sum() / singular[0] ** 2)


def test_maps_of_another_place_are_refused():
    with pytest.raises(ValueError, match='maps'):
        find_sinks(torch.rand(1, 1, 2, 9, 9), torch.rand(1, 1, 2, 9, 4), place_of(vit))
