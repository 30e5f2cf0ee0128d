"""Measures of attention maps, also of refined and broad ones, against loops over tokens and cases by hand."""

import math

import pytest
import torch
from cases import HOSTS, images, randomize, vit
from hypothesis import given
from hypothesis import strategies as st
from token_places import PLACED_HOSTS, dense, sides
from torch.testing import assert_close

import vitplug
from vitplug.attention import GlobalLayout
from vitplug.hosting import PixelGrid
from vitplug.lab.study.measures.attention import (
    attention_entropy,
    attention_rollout,
    mean_attention_distance,
    non_locality,
    relative_distance,
    undefined_queries,
)
from vitplug.lab.study.places import Place, dense_maps, to_image

SIZES = [(32, 40), (37, 51)]


def weighted(maps, queries, keys, distance):
    """``sum_j a_ij distance(i, j)``, mean over queries."""
    table = [[distance(queries, q, keys, k) for k in keys.tokens()] for q in queries.tokens()]
    return (maps * torch.tensor(table, dtype=maps.dtype)).sum(-1).mean(-1)


def pixels(queries, q, keys, k):
    return math.dist(queries.middle(q), keys.middle(k))


def relative(queries, q, keys, k):
    ends = zip(zip(q, queries.hw, strict=True), zip(k, keys.hw, strict=True), strict=True)
    return sum(abs((a + 0.5) / h - (b + 0.5) / w) for (a, h), (b, w) in ends)


def record(model, size, *names):
    with torch.no_grad():
        return model.forward_intermediates(images(*size), names)[1]


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('host', PLACED_HOSTS)
def test_measures_are_those_of_loops_over_the_image(host, size):
    model = randomize(PLACED_HOSTS[host]()).double().eval()
    for layer, maps in record(model, size, 'probs')['probs'].items():
        place = Place.of(model, layer, size)
        queries, keys = sides(host, model, layer, size)
        whole = dense(maps, queries, keys)
        assert_close(to_image(maps, place).flatten(3), whole)
        rows = whole / whole.sum(-1, keepdim=True)
        assert_close(attention_entropy(maps, place), -torch.special.xlogy(rows, rows).sum(-1).mean(-1))

        distance = weighted(rows, queries, keys, pixels)
        assert_close(mean_attention_distance(maps, place), distance)
        assert_close(non_locality(maps, place), distance / queries.step)

        by_query = weighted(whole, queries, keys, relative)
        assert_close(relative_distance(maps, place), by_query)


@pytest.mark.parametrize('host', ['vit', 'pit-distilled', 'mvit-cls', 't2t'])
def test_entropy_of_all_queries(host):
    size = (32, 32)
    model = randomize(HOSTS[host]()).double().eval()
    for layer, maps in record(model, size, 'probs')['probs'].items():
        place = Place.of(model, layer, size)
        rows = -torch.special.xlogy(maps, maps).sum(-1)[:, 0]
        assert_close(attention_entropy(maps, place, 'all'), rows.mean(-1))
        assert_close(dense_maps(maps, place), maps[:, 0])


# --- cases by hand ---


def square(rows, columns, patch=16, prefix=0):
    """The place of global attention on a grid."""
    layout, pixels = GlobalLayout(rows, columns, prefix), PixelGrid((rows, columns), (patch, patch))
    return Place(layout, pixels, layout, pixels, (rows * patch, columns * patch))


def test_attention_to_keys_of_no_token_does_not_count():
    """Where a sink takes three quarters of each row, relative distances are a quarter; distances are of the rest."""
    place = square(3, 4)
    maps = torch.rand(2, 1, 3, 12, 12, dtype=torch.float64).softmax(-1)
    assert_close(relative_distance(maps / 4, place), relative_distance(maps, place) / 4)
    assert_close(mean_attention_distance(maps / 4, place), mean_attention_distance(maps, place))
    # Rows of more than 1 are shares.
    assert_close(relative_distance(-3 * maps, place), relative_distance(maps, place))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 5))
def test_rollout_is_the_product_of_rows_with_a_sum_of_one(seeds, tokens):
    maps = [torch.rand(2, tokens, tokens, generator=torch.Generator().manual_seed(s)).double() for s in seeds]
    expected = torch.eye(tokens, dtype=torch.float64).expand(2, -1, -1)
    for one in maps:
        both = one + torch.eye(tokens)
        expected = torch.stack([(b / b.sum(1, keepdim=True)) @ e for b, e in zip(both, expected, strict=True)])
    rolled = attention_rollout(maps)
    assert_close(rolled, expected)
    assert_close(rolled.sum(-1), torch.ones(2, tokens, dtype=torch.float64))


def test_queries_without_attention_to_patches_are_left_out_and_counted():
    """By hand: of two patches and a class token, one patch attends to the class token alone."""
    layout, pixels = GlobalLayout(1, 2, 1), PixelGrid((1, 2), (8, 8))
    place = Place(layout, pixels, layout, pixels, (8, 16))
    rows = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1 - 1e-20, 5e-21, 5e-21]], dtype=torch.float64)
    maps = rows[None, None, None]
    # The other one has little attention to patches, and half of it goes to the next one.
    assert_close(mean_attention_distance(maps, place).item(), 4.0)
    assert_close(attention_entropy(maps, place).item(), 0.6931471805599453)
    assert_close(undefined_queries(maps, place).item(), 0.5)
    nothing = torch.tensor([[1.0, 0, 0]] * 3, dtype=torch.float64)[None, None, None]
    assert mean_attention_distance(nothing, place).isnan().all() and attention_entropy(nothing, place).isnan().all()


def test_maps_of_another_place_are_refused():
    maps = record(vit().double(), (32, 40), 'probs')['probs'][0]
    for wrong, place in ((maps, Place.of(vit(), 0, (64, 64))), (maps[:, 0], Place.of(vit(), 0, (32, 40)))):
        with pytest.raises(ValueError, match='maps'):
            attention_entropy(wrong, place)
    with pytest.raises(ValueError, match=r'expected \(B, N, N\), all of one size'):
        attention_rollout([torch.ones(1, 2, 3)])


def test_models_of_timm_that_pad_or_embed_by_several_convolutions():
    """Filled up patches lie beyond the image, where zeros beside it would lie; tokens of hybrids lie nowhere known."""
    timm = pytest.importorskip('timm')
    torch.manual_seed(0)
    settings = dict(img_size=(40, 56), patch_size=16, depth=1, dynamic_img_size=True, dynamic_img_pad=True)
    model = vitplug.plug_in(timm.create_model('vit_tiny_patch16_224', **settings), [])
    x = images(40, 56, dtype=torch.float32)
    filled = torch.nn.functional.pad(x, (0, 8, 0, 8))
    found = []
    for one in (x, filled):
        host, size = vitplug.host_of(model), tuple(one.shape[-2:])
        with torch.no_grad():
            maps = host.forward_intermediates(one, ('probs',))[1]['probs'][0]
        found.append(mean_attention_distance(maps, Place.of(host, 0, size)))
    assert_close(*found)
    hybrid = vitplug.plug_in(timm.create_model('vit_tiny_r_s16_p8_224', img_size=64, depth=1), [])
    with pytest.raises(ValueError, match='embeds images by more than one convolution'):
        Place.of(vitplug.host_of(hybrid), 0, (64, 64))


# --- refined maps: negative weights, rows of any sum ---


def test_weights_of_either_sign_count_by_their_size():
    """By hand: one row of three tokens, 1/2, 1/4 and 1/4 in size; the other rows see themselves alone."""
    place = square(1, 3, patch=8)
    maps = torch.tensor([[-2.0, 1.0, -1.0], [0, 5, 0], [0, 0, -0.1]], dtype=torch.float64)[None, None, None]
    assert_close(attention_entropy(maps, place).item(), 1.5 * 0.6931471805599453 / 3)
    assert_close(non_locality(maps, place).item(), (0.25 * 1 + 0.25 * 2) / 3)
    assert_close(mean_attention_distance(maps, place).item(), 8 * 0.75 / 3)
    assert_close(relative_distance(maps, place).item(), 0.75 / 3 / 3)
