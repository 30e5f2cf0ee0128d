"""The attention of the strongest key, counted query by query; pixels of a relevance map, taken out by hand."""

import numpy as np
import pytest
import torch
from cases import images, randomize, swin, vit

from vitplug.lab.study.measures.attention import sink_attention
from vitplug.lab.study.measures.grad_cam import pixel_flipping
from vitplug.lab.study.places import Place


@torch.no_grad()
@pytest.mark.parametrize(('make', 'layer', 'size'), [(vit, 1, (40, 56)), (swin, 1, (36, 44))], ids=['vit', 'swin'])
def test_sinks_by_loops(make, layer, size):
    """Padded slots of shifted windows count neither as queries nor as keys."""
    model = randomize(make()).double().eval()
    _, recorded = model.forward_intermediates(images(*size), ('probs',), layers=[layer])
    place, maps = Place.of(model, layer, size), 0.45 * recorded['probs'][layer]
    maps[:, :, 0, :, 2] += 0.55  # of the first head, towards one key
    is_token = place.queries.is_token.numpy()
    received = np.zeros(maps.shape[:3])
    for b, w, h in np.ndindex(*maps.shape[:3]):
        part = maps[b, w, h].numpy()[is_token[w]]
        received[b, w, h] = np.where(is_token[w], part.mean(0), -1).max()
    assert sink_attention(maps, place).numpy() == pytest.approx(received.mean(1))


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
