"""Measures of further maps: refined, of broad attention, with registers."""

import pytest
import torch
from cases import HOSTS, PREFIX_PLUGS, images, randomize, vit, vit_without_class_token
from torch.testing import assert_close

from vitplug.attention import GlobalLayout
from vitplug.hosting import PixelGrid
from vitplug.lab.study.measures.attention import (
    attention_entropy,
    mean_attention_distance,
    non_locality,
    relative_distance,
)
from vitplug.lab.study.places import Place, dense_maps

SIZE = (37, 51)


def record(model, *names, size=SIZE):
    with torch.no_grad():
        return model.forward_intermediates(images(*size), names)[1]


# --- refined maps: negative weights, rows of any sum ---


def test_weights_of_either_sign_count_by_their_size():
    """By hand: one row of three tokens, 1/2, 1/4 and 1/4 in size; the other rows see themselves alone."""
    layout, pixels = GlobalLayout(1, 3), PixelGrid((1, 3), (8, 8))
    place = Place(layout, pixels, layout, pixels, (8, 24))
    maps = torch.tensor([[-2.0, 1.0, -1.0], [0, 5, 0], [0, 0, -0.1]], dtype=torch.float64)[None, None, None]
    assert_close(attention_entropy(maps, place).item(), 1.5 * 0.6931471805599453 / 3)
    assert_close(non_locality(maps, place).item(), (0.25 * 1 + 0.25 * 2) / 3)
    assert_close(mean_attention_distance(maps, place).item(), 8 * 0.75 / 3)
    assert_close(relative_distance(maps, place).item(), 0.75 / 3 / 3)


# --- broad attention ---


@pytest.mark.parametrize('host', ['vit', 'vit-windows', 'swin', 'mvit-cls', 'lvt'])
def test_broad_maps_have_a_place(host):
    model = randomize(HOSTS[host](plugs=[dict(type='BroadAttention')])).double().eval()
    [(layer, maps)] = record(model, 'broad_probs')['broad_probs'].items()
    place = Place.of(model, layer, SIZE, 'broad_probs')
    assert_close(dense_maps(maps, place), maps[:, 0])
    rows = torch.special.entr(maps[:, 0]).sum(-1)
    assert_close(attention_entropy(maps, place, 'all'), rows.mean(-1))
    # The class token takes part on hosts with one grid alone.
    assert bool(place.prefix_names) == (host == 'vit')


# --- prefix tokens ---


def test_a_register_is_no_class_token():
    plugs = PREFIX_PLUGS['registers']
    for host, has_class_token in ((vit, True), (vit_without_class_token, False)):
        model = randomize(host(plugs=plugs)).double().eval()
        maps, place = record(model, 'probs')['probs'][1], Place.of(model, 1, SIZE)
        if has_class_token:
            assert_close(attention_entropy(maps, place, 'cls'), torch.special.entr(maps[:, 0, :, 0]).sum(-1))
        else:
            assert attention_entropy(maps, place, 'cls').isnan().all()
        patches = maps[:, 0, :, place.layout.num_prefix :, place.layout.num_prefix :]
        rows = patches / patches.sum(-1, keepdim=True)
        assert_close(attention_entropy(maps, place), torch.special.entr(rows).sum(-1).mean(-1))
