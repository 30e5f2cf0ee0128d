"""Sinks of made maps, counted query by query; scores of relevance maps of known places."""

import numpy as np
import pytest
import torch
from cases import images, randomize, swin, vit

from vitplug.lab.study.measures.relevance import against_mask, pixel_flipping
from vitplug.lab.study.measures.sinks import find_sinks
from vitplug.lab.study.places import Place


@torch.no_grad()
@pytest.mark.parametrize(('make', 'layer', 'size'), [(vit, 1, (40, 56)), (swin, 1, (36, 44))], ids=['vit', 'swin'])
@pytest.mark.parametrize('short', [False, True])
def test_sinks_by_loops(make, layer, size, short):
    """Padded slots of shifted windows count neither as queries nor as keys."""
    model = randomize(make()).double().eval()
    _, recorded = model.forward_intermediates(images(*size), ('probs', 'v'), layers=[layer])
    place = Place.of(model, layer, size)
    maps, v = 0.45 * recorded['probs'][layer], recorded['v'][layer]
    maps[..., 2] += 0.55  # towards one key
    v[..., 2, :] *= 0.01 if short else 5
    found = find_sinks(maps, v, place)
    is_token = place.queries.is_token.numpy()
    kinds = set()
    for b, w, h in np.ndindex(*maps.shape[:3]):
        there = is_token[w]
        if not there.any():
            continue
        part, norms = maps[b, w, h].numpy()[there], v[b, w, h].norm(dim=-1).numpy()
        received = np.where(there, part.mean(0), -1)
        key = received.argmax()
        at = {name: tensor[b, w, h].item() for name, tensor in found.items()}
        assert at['key'] == key and at['attention'] == pytest.approx(received[key])
        assert at['sink'] == ((part[:, key] >= 0.5).mean() >= 0.9)
        singular = np.linalg.svd(part @ v[b, w, h].numpy(), compute_uv=False)
        assert at['rank'] == pytest.approx((singular**2).sum() / singular[0] ** 2)
        others = sorted(norm for slot, norm in enumerate(norms) if there[slot] and slot != key)
        if others:
            assert at['ratio'] == pytest.approx(norms[key] / others[(len(others) - 1) // 2])
            assert at['NOP'] == (at['sink'] and at['ratio'] <= 0.2)
            assert at['broadcast'] == (at['sink'] and at['ratio'] >= 0.5 and at['rank'] <= 1.5)
        kinds |= {kind for kind in ('NOP', 'broadcast') if at[kind]}
    assert kinds == {'NOP' if short else 'broadcast'}


def test_scores_against_a_mask():
    heat, mask = np.array([[4.0, 3, 3], [-9, 1, 0]]), np.array([[1, 1, 0], [1, 0, 0]], bool)
    scores = against_mask(heat, mask)
    # Of the three highest pixels, 4, 3 and 3, two are in the mask.
    assert scores == {'pointing game': 1, 'relevance mass': 7 / 11, 'relevance rank': pytest.approx(2 / 3)}
    tied = against_mask(np.ones((2, 2)), np.array([[1, 0], [0, 0]], bool))
    assert tied == {'pointing game': 0.25, 'relevance mass': 0.25, 'relevance rank': 0.25}
    assert against_mask(-heat.clip(min=0), mask)['relevance mass'] == 0


def test_pixel_flipping_takes_the_highest_first():
    image = np.arange(8.0).reshape(2, 2, 2)
    seen = []
    pixel_flipping(lambda changed: seen.append(changed) or 0.0, image, np.array([[1, 4], [3, 2]]), steps=4)
    mean = image.mean((1, 2))
    for out, places in enumerate([[], [(0, 1)], [(0, 1), (1, 0)], [(0, 1), (1, 0), (1, 1)]]):
        expected = image.copy()
        for y, x in places:
            expected[:, y, x] = mean
        np.testing.assert_array_equal(seen[out], expected)
