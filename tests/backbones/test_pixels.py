"""Attention maps laid over the image, against loops over tokens and the pixels that the network looks at."""

import pytest
import torch
from cases import HOSTS, ONE_GRID_HOSTS, images, randomize, vit
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


def token_grid(model, index, size):
    """Rows and columns of a block's tokens, and the row, or column, of tokens of each of the pixels."""
    if hasattr(model, 'tokens_to_token'):
        return tuple(zip(*map(soft_splits, size), strict=True))
    # Patches and mergings pad at the end.
    side = 4 if hasattr(model, 'stages') else 8
    hw = [-(-pixels // side) for pixels in size]
    if hasattr(model, 'stages') and index >= 2:
        side, hw = 2 * side, [-(-tokens // 2) for tokens in hw]
    return hw, [[pixel // side for pixel in range(pixels)] for pixels in size]


def soft_splits(pixels):
    """Tokens along an axis, and for each pixel the one whose middle is the nearest, of two the later."""
    middles = [[*range(pixels)]]
    for kernel, stride, pad in ((7, 4, 2), (3, 2, 1), (3, 2, 1)):
        before, step = middles[-1], middles[-1][1] - middles[-1][0]
        starts = range(-pad, len(before) + pad - kernel + 1, stride)
        middles.append([before[0] + step * (start + kernel // 2) for start in starts])
    count = len(middles[-1])
    return count, [min(range(count), key=lambda i: (abs(middles[-1][i] - pixel), -i)) for pixel in range(pixels)]


def window_of(model, index, hw, token):
    """Window and place of a token ``(y, x)`` of a block, with shift and padding."""
    if hasattr(model, 'stages'):
        attn = model.plugged_blocks()[index].attn
        window, shift = attn.window_size, attn.shift_size if min(hw) != attn.window_size or attn.pad_small_map else 0
    elif getattr(model, 'window_size', None) and index not in model.global_blocks:
        window, shift = model.window_size, 0
    else:
        return 0, model.num_extra_tokens + token[0] * hw[1] + token[1]
    padded = [-(-side // window) * window for side in hw]
    y, x = ((place - shift) % side for place, side in zip(token, padded, strict=True))
    return (y // window) * (padded[1] // window) + x // window, (y % window) * window + x % window


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('host', ONE_GRID_HOSTS)
def test_every_token_is_where_a_loop_finds_it(host, size):
    model = randomize(HOSTS[host]()).double().eval()
    found = record(model, size, 'probs')
    for index, maps in found['probs'].items():
        (rows, columns), (row_of, column_of) = token_grid(model, index, size)
        tokens = [(y, x) for y in range(rows) for x in range(columns)]
        places = {token: window_of(model, index, (rows, columns), token) for token in tokens}
        pixel = (size[0] // 2, size[1] - 1)
        own, row = places[row_of[pixel[0]], column_of[pixel[1]]]
        one, received = (torch.zeros(*maps.shape[:1], maps.shape[2], rows, columns).double() for _ in range(2))
        for (y, x), (window, place) in places.items():
            if window == own:
                one[:, :, y, x] = maps[:, own, :, row, place]
            queries = [other for w, other in places.values() if w == window]
            queries += range(getattr(model, 'num_extra_tokens', 0))
            received[:, :, y, x] = maps[:, window][:, :, queries, place].sum(-1)
        for query, expected in ((pixel, one), (None, received)):
            whole = expected[:, :, row_of][..., column_of]
            assert_close(model.maps_to_image(found, index, size, query), whole)


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
    _, pixels = model.place_block(0, size)
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
