"""Measures of further maps: refined, of broad attention, with registers, and of two layouts."""

from itertools import product

import pytest
import torch
from cases import HOSTS, PLUGS, PREFIX_PLUGS, images, randomize, vit, vit_without_class_token
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, WindowLayout
from vitplug.hosting import PixelGrid
from vitplug.lab.study.quantities.attention import (
    attention_entropy,
    map_similarity,
    mean_attention_distance,
    non_locality,
    relative_distance,
)
from vitplug.lab.study.quantities.maps import dense_maps, to_image
from vitplug.lab.study.quantities.places import Place

SIZE = (37, 51)


def record(model, *names, size=SIZE):
    with torch.no_grad():
        return model.forward_intermediates(images(*size), names)[1]


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


@pytest.mark.parametrize('host', ['vit', 'swin', 'mvit-cls'])
def test_measures_of_refined_maps_keep_their_bounds(host):
    model = randomize(HOSTS[host](plugs=PLUGS['refiner'])).double().eval()
    negative = False
    for layer, maps in record(model, 'maps')['maps'].items():
        place, negative = Place.of(model, layer, SIZE), negative or (maps < 0).any()
        diagonal = sum(side**2 for side in SIZE) ** 0.5
        for measure, most in (
            (attention_entropy, torch.tensor(maps.shape[-1]).log()),
            (mean_attention_distance, diagonal),
        ):
            values = measure(maps, place)
            assert 0 <= values.min() <= values.max() <= most
        assert_close(mean_attention_distance(-3 * maps, place), mean_attention_distance(maps, place))
    assert negative


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


def test_a_place_is_that_of_maps():
    with pytest.raises(ValueError, match=r"name='block': expected one of \['scores', 'logits', 'probs'"):
        Place.of(vit(), 3, SIZE, 'block')


# --- prefix tokens ---


def test_a_register_is_no_class_token():
    plugs = PREFIX_PLUGS['registers']
    for host, has_class_token in ((vit, True), (vit_without_class_token, False)):
        model = randomize(host(plugs=plugs)).double().eval()
        maps, place = record(model, 'probs')['probs'][1], Place.of(model, 1, SIZE)
        if has_class_token:
            assert_close(attention_entropy(maps, place, 'cls'), torch.special.entr(maps[:, 0, :, 0]).sum(-1))
        else:
            with pytest.raises(ValueError, match="queries='cls': these maps have no class token"):
                attention_entropy(maps, place, 'cls')
        patches = maps[:, 0, :, place.layout.num_prefix :, place.layout.num_prefix :]
        rows = patches / patches.sum(-1, keepdim=True)
        assert_close(attention_entropy(maps, place), torch.special.entr(rows).sum(-1).mean(-1))


# --- two layouts ---

WINDOWS = st.none() | st.tuples(st.integers(1, 4), st.integers(0, 3))


def place_of(window, hw):
    layout = GlobalLayout(*hw, 1) if window is None else WindowLayout(*hw, window[0], min(window[1], window[0] - 1))
    return Place(layout, PixelGrid(hw), layout, PixelGrid(hw), hw)


def seen_together(layout, q, k):
    """Where the map has a pair of patches, ``(window, slot, slot)``; None if no window has both. By rolling indices."""
    width = layout.hw[1]
    if not layout.is_windowed:
        return 0, *(layout.num_prefix + y * width + x for y, x in (q, k))
    side, ends = layout.window, []
    padded = [-(-length // side) * side for length in layout.hw]
    for token in (q, k):
        y, x = ((place - layout.shift) % length for place, length in zip(token, padded, strict=True))
        ends.append(((y // side) * (padded[1] // side) + x // side, (y % side) * side + x % side))
    return (ends[0][0], ends[0][1], ends[1][1]) if ends[0][0] == ends[1][0] else None


@given(a=WINDOWS, b=WINDOWS, rows=st.integers(1, 7), columns=st.integers(1, 7), seed=st.integers(0, 99))
def test_similarity_of_any_two_layouts(a, b, rows, columns, seed):
    hw, flat, whole = (rows, columns), [], []
    tokens = list(product(range(rows), range(columns)))
    for heads, window in ((2, a), (3, b)):
        place = place_of(window, hw)
        windows = place.layout.windows[0] * place.layout.windows[1]
        maps = noise(2, windows, heads, *[place.layout.grid.num_tokens] * 2, seed=seed + heads)
        dense = torch.zeros(2, len(tokens), len(tokens), dtype=torch.float64)
        for (i, q), (j, k) in product(enumerate(tokens), repeat=2):
            if at := seen_together(place.layout, q, k):
                dense[:, i, j] = maps[:, at[0], :, at[1], at[2]].mean(1)
        assert_close(to_image(maps, place).flatten(3).mean(1), dense)
        flat += [maps, place]
        whole.append(dense.flatten(1))
    assert_close(map_similarity(*flat), torch.nn.functional.cosine_similarity(*whole))
    assert_close(map_similarity(*flat[2:], *flat[:2]), map_similarity(*flat))


def test_similarity_of_maps_with_other_keys_than_queries():
    model = randomize(HOSTS['lvt']()).double().eval()
    found, places = record(model, 'probs')['probs'], [Place.of(model, layer, SIZE) for layer in range(4)]
    expected = [found[layer].mean(2).flatten(1) for layer in (1, 2)]
    got = map_similarity(found[1], places[1], found[2], places[2])
    assert_close(got, torch.nn.functional.cosine_similarity(*expected))
    with pytest.raises(ValueError, match='only maps on the same grids'):
        map_similarity(found[2], places[2], found[3], places[3])
