"""Edits of heads and tokens and their control, each beside a few lines of NumPy."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.lab.study.edits import TokenMeans, random_control, replaced, zero

SITE = Site(GlobalLayout(2, 3, 1))


def heads(seed=0, batch=2):
    return torch.randn(batch, 7, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(tensor, values, chosen, axis=2):
    found = tensor.numpy().copy()
    index = [slice(None)] * found.ndim
    index[axis] = list(chosen)
    found[tuple(index)] = np.broadcast_to(values, found.shape)[tuple(index)]
    return torch.from_numpy(found)


def test_values_of_chosen_heads_and_tokens():
    x = heads()
    assert_close(zero(heads=[1])(x, SITE), by_hand(x, 0.0, [1]))
    assert_close(zero(tokens=[0, 6])(x, SITE), by_hand(x, 0.0, [0, 6], axis=1))
    both = zero(heads=[2], tokens=[3])(x, SITE)
    assert both[:, 3, 2].eq(0).all() and (both == x).sum() == x.numel() - 2 * 4
    assert_close(zero()(x, SITE), torch.zeros_like(x))


def test_means_over_images_of_several_sizes():
    first, second = heads(1, batch=1), torch.randn(2, 11, 3, 4, dtype=torch.float64)
    means = TokenMeans.joined([TokenMeans(first, 1), TokenMeans(second, 1)])
    patches = np.concatenate([first[:, 1:].numpy().reshape(-1, 3, 4), second[:, 1:].numpy().reshape(-1, 3, 4)])
    prefix = np.concatenate([first[:, 0].numpy(), second[:, 0].numpy()])
    x = heads(2)
    expected = np.concatenate([prefix.mean(0)[None], np.repeat(patches.mean(0)[None], 6, 0)])
    assert_close(replaced(means.values, heads=[1])(x, SITE), by_hand(x, expected[None], [1]))


def test_control_is_as_large_and_elsewhere():
    x, edit = heads(), zero(heads=[1])
    change = random_control(edit, 5)(x, SITE) - x
    assert_close(change.norm(dim=-1), (edit(x, SITE) - x).norm(dim=-1))
    assert change[:, :, [0, 2]].eq(0).all()
    cosine = torch.cosine_similarity(change[:, :, 1].flatten(), -x[:, :, 1].flatten(), dim=0)
    assert abs(cosine) < 0.5
    assert torch.equal(change, random_control(edit, 5)(x, SITE) - x)
    assert not torch.equal(change, random_control(edit, 6)(x, SITE) - x)


@pytest.mark.parametrize(
    ('chosen', 'tensor', 'message'),
    [
        (dict(heads=[3]), heads(), r'heads=\[3\]: there are heads 0 to 2'),
        (dict(tokens=[-1]), heads(), r'tokens=\[-1\]: there are tokens 0 to 6'),
        (dict(heads=[0]), heads()[..., 0], 'no heads to choose'),
        (dict(tokens=[0]), heads()[:, None], 'no tokens to choose'),
    ],
)
def test_heads_and_tokens_that_are_not_there_are_refused(chosen, tensor, message):
    with pytest.raises(ValueError, match=message):
        zero(**chosen)(tensor, SITE)
