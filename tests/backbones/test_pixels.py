"""Attention maps laid over the image, against loops over tokens and the pixels that the network looks at."""

import pytest
import torch
from cases import HOSTS, images, randomize, vit
from token_places import PLACED_HOSTS, dense, sides
from torch.testing import assert_close

SIZES = [(32, 40), (37, 51), (40, 32)]
EMBEDS = {
    'plain': dict(),
    'same': dict(patch_cfg=dict(padding='same')),
    'overlap': dict(patch_cfg=dict(kernel_size=12, stride=8, padding=2)),
    'gaps': dict(patch_cfg=dict(kernel_size=4, stride=8, padding=0)),
    'stem': dict(stem='conv'),
}


def record(model, size, *names):
    return model.forward_intermediates(images(*size), names)[1]


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('host', PLACED_HOSTS)
def test_every_token_is_where_a_loop_finds_it(host, size):
    """What a query sees and what keys receive, of prefix tokens too."""
    model = randomize(PLACED_HOSTS[host]()).double().eval()
    found = record(model, size, 'probs')
    for index, maps in found['probs'].items():
        queries, keys = sides(host, model, index, size)
        whole = dense(maps, queries, keys)
        received = whole.sum(2)
        if queries.prefix:
            received += maps[:, 0, :, : queries.prefix, keys.prefix :].sum(2)
        pixel = (size[0] // 2, size[1] - 1)
        token = queries.nearest(pixel[0], 0) * queries.hw[1] + queries.nearest(pixel[1], 1)
        rows, columns = ([keys.nearest(place, axis) for place in range(size[axis])] for axis in (0, 1))
        for query, expected in ((pixel, whole[:, :, token]), (None, received)):
            on_image = expected.unflatten(-1, keys.hw)[:, :, rows][..., columns]
            assert_close(model.maps_to_image(found, index, size, query), on_image)


@pytest.mark.parametrize('host', ['vit', 'vit-windows', 'swin'])
def test_broad_maps_lie_on_the_last_grid(host):
    model = randomize(HOSTS[host](plugs=[dict(type='BroadAttention')])).double().eval()
    found = record(model, (64, 64), 'broad_probs')
    prefix = getattr(model, 'num_extra_tokens', 0)
    side = int((found['broad_probs'][3].shape[-1] - prefix) ** 0.5)
    whole = model.maps_to_image(found, 3, (64, 64), (9, 23), name='broad_probs')
    token = prefix + (9 * side // 64) * side + 23 * side // 64
    expected = found['broad_probs'][3][:, 0, :, token, prefix:].unflatten(-1, (side, side))
    assert_close(whole[:, :, :: 64 // side, :: 64 // side], expected)


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('embed', EMBEDS)
def test_pixels_of_a_token_are_in_the_middle_of_what_it_sees(embed, size):
    """The gradient of a token's embedding is the oracle of which pixels it sees."""
    model = vit(**EMBEDS[embed]).double().eval()
    x = images(*size, batch=1).requires_grad_()
    tokens, hw = model.patch_embed(x)
    (_, pixels), _ = model.place_maps(0, size)
    assert pixels.hw == tuple(hw)
    for index in {0, hw[1] + 1, hw[0] * hw[1] - 1}:
        (grad,) = torch.autograd.grad(tokens[0, index].sum(), x, retain_graph=True)
        seen = grad[0].abs().sum(0) > 0
        own = torch.zeros(hw[0] * hw[1]).index_fill(0, torch.tensor([index]), 1).view(*hw)
        shown = pixels.to_image(own, size) > 0
        for axis in (0, 1):
            first, last = (where.any(axis).nonzero().flatten()[[0, -1]] for where in (seen, shown))
            inside = all(span[0] > 0 and span[1] < size[1 - axis] - 1 for span in (first, last))
            if inside:  # at the edges, padding is seen, and what nobody sees goes to the nearest token
                assert abs((first.sum() - last.sum()).item()) <= 2, (index, axis, first, last)
