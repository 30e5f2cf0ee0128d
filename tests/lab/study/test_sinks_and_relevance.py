"""Sinks of made maps, counted query by query; scores of relevance maps of known places."""

import numpy as np
import pytest
import torch
from cases import images, randomize, swin, vit
from mmengine.structures import BaseDataElement, PixelData

from vitplug.lab.study.measures.relevance import against_mask, of_class, of_pixels, pixel_flipping
from vitplug.lab.study.measures.sinks import find_sinks
from vitplug.lab.study.places import Place
from vitplug.tasks.targets import ClassLogit, PixelClass


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


def test_what_a_map_is_to_explain():
    sample = BaseDataElement()
    sample.pred_score = torch.tensor([0.2, 0.7, 0.1])
    target, mask, score = of_class(sample)
    assert target == ClassLogit(1) and mask is None and score(sample) == pytest.approx(0.7)


def of_map(logits):
    sample, logits = BaseDataElement(), torch.tensor(logits, dtype=torch.float64)
    labels = logits.argmax(0, keepdim=True) if len(logits) > 1 else (logits > 0).long()
    sample.seg_logits, sample.pred_sem_seg = PixelData(data=logits), PixelData(data=labels)
    return sample


@pytest.mark.parametrize('outputs', [1, 2])
def test_the_class_behind_the_background(outputs):
    """Without pixels of no class, which are most here; one output is the logit of the second class."""
    ones = np.array([[3.0, -1.0, 2.0, -4.0]])
    sample = of_map([ones] if outputs == 1 else [0 * ones, ones])
    target, mask, score = of_pixels(sample, np.array([[1, 0, 0, 255]]), void=255)
    assert target == PixelClass(1) and mask.tolist() == [[True, False, False, False]]
    assert score(sample) == pytest.approx(np.mean(1 / (1 + np.exp(-np.array([3.0, 2.0])))))
    assert of_pixels(sample, np.array([[0, 0, 255, 255]]), void=255) is None
    assert of_pixels(sample, np.array([[0, 0, 0, 2]]), void=255) is None
