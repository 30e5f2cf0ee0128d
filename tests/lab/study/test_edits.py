"""Edits of heads, tokens and maps, their control and their effect, each beside a few lines of NumPy."""

import numpy as np
import pytest
import torch
from cases import images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.lab.study import edits as interventions
from vitplug.lab.study.edits import TokenMeans

SIZE = (40, 56)
SITE = Site(GlobalLayout(2, 3, 1))


def heads(seed=0, batch=2):
    return torch.randn(batch, 7, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def maps(seed=0):
    return heads(seed).new_tensor(np.random.default_rng(seed).dirichlet(np.ones(7), (2, 1, 3, 7)))


def by_hand(tensor, values, chosen_heads=(), chosen_tokens=None, axis=2):
    found = tensor.numpy().copy()
    index = [slice(None)] * found.ndim
    index[axis] = list(chosen_heads)
    found[tuple(index)] = np.broadcast_to(values, found.shape)[tuple(index)]
    return torch.from_numpy(found)


def test_values_of_chosen_heads_and_tokens():
    x = heads()
    assert_close(interventions.zero(heads=[1])(x, SITE), by_hand(x, 0.0, [1]))
    assert_close(interventions.zero(tokens=[0, 6])(x, SITE), by_hand(x, 0.0, [0, 6], axis=1))
    both = interventions.zero(heads=[2], tokens=[3])(x, SITE)
    assert both[:, 3, 2].eq(0).all() and (both == x).sum() == x.numel() - 2 * 4
    assert_close(interventions.zero()(x, SITE), torch.zeros_like(x))


def test_shuffled_keeps_prefix_and_values():
    x = heads()
    found = interventions.shuffled(3, heads=[1])(x, SITE)
    assert torch.equal(found[:, :, [0, 2]], x[:, :, [0, 2]]) and torch.equal(found[:, 0], x[:, 0])
    rows = [row.tolist() for row in found[0, 1:, 1]]
    assert sorted(rows) == sorted(row.tolist() for row in x[0, 1:, 1]) and not torch.equal(found, x)
    # The same order in both images.
    order = [rows.index(row.tolist()) for row in x[0, 1:, 1]]
    assert torch.equal(found[1, 1:, 1][order], x[1, 1:, 1])
    assert torch.equal(found, interventions.shuffled(3, heads=[1])(x, SITE))


def test_means_over_images_of_several_sizes():
    first, second = heads(1, batch=1), torch.randn(2, 11, 3, 4, dtype=torch.float64)
    means = TokenMeans.joined([TokenMeans(first, 1), TokenMeans(second, 1)])
    patches = np.concatenate([first[:, 1:].numpy().reshape(-1, 3, 4), second[:, 1:].numpy().reshape(-1, 3, 4)])
    prefix = np.concatenate([first[:, 0].numpy(), second[:, 0].numpy()])
    x = heads(2)
    expected = np.concatenate([prefix.mean(0)[None], np.repeat(patches.mean(0)[None], 6, 0)])
    assert_close(interventions.mean(means, heads=[1])(x, SITE), by_hand(x, expected[None], [1]))


def test_redirected_attention():
    x = maps()
    assert_close(interventions.redirected('self', [0])(x, SITE), by_hand(x, np.eye(7), [0]))
    assert_close(interventions.redirected('all', [1])(x, SITE), by_hand(x, 1 / 7, [1]))


@torch.no_grad()
def test_redirected_in_a_model_is_the_mean_of_values():
    """Uniform maps give each query the mean value of its window, and its own value for the map of itself."""
    for make in (vit, swin):
        model = randomize(make()).double().eval()
        for to in ('all', 'self'):
            edits = {'maps': {0: interventions.redirected(to)}}
            with model.edited(edits):
                _, found = model.forward_intermediates(images(*SIZE), ('v', 'heads', 'site'), layers=[0])
            v, layout = found['v'][0], found['site'][0].layout
            values = v.mean(3, keepdim=True).expand_as(v) if to == 'all' else v
            expected = layout.from_windows(values.transpose(2, 3).flatten(3)).unflatten(2, (v.shape[2], -1))
            assert_close(found['heads'][0], expected)


def test_control_is_as_large_and_elsewhere():
    x, edit = heads(), interventions.zero(heads=[1])
    change = interventions.random_control(edit, 5)(x, SITE) - x
    assert_close(change.norm(dim=-1), (edit(x, SITE) - x).norm(dim=-1))
    assert change[:, :, [0, 2]].eq(0).all()
    cosine = torch.cosine_similarity(change[:, :, 1].flatten(), -x[:, :, 1].flatten(), dim=0)
    assert abs(cosine) < 0.5
    assert torch.equal(change, interventions.random_control(edit, 5)(x, SITE) - x)
    assert not torch.equal(change, interventions.random_control(edit, 6)(x, SITE) - x)


@torch.no_grad()
def test_control_of_maps_leaves_hidden_pairs_alone():
    """In shifted windows, some pairs must not see each other, and an edit to all keys alike does not change that."""
    model, hidden, changes = randomize(swin()).double().eval(), [], {}
    edit = interventions.redirected('all')
    for of_maps in (True, False):

        def control(maps, site, of_maps=of_maps):
            hidden.append(site.softmax_mask().expand(maps.shape) != 0)
            changes[of_maps] = interventions.random_control(edit, 3, of_maps)(maps, site) - maps
            changes['edit'] = edit(maps, site) - maps
            return maps

        model.forward_edited(images(*SIZE), {'maps': {1: control}})
    assert hidden[0].any() and not hidden[0].all()
    assert changes[True][hidden[0]].eq(0).all() and changes[False][hidden[0]].ne(0).any()
    assert_close(changes[True].norm(dim=-1), changes['edit'].norm(dim=-1))


def test_relative_change_of_several_maps():
    before, after = [heads(1), heads(2)[..., 0]], [heads(3), heads(4)[..., 0]]
    a, b = (np.concatenate([part.numpy().reshape(2, -1) for part in parts], 1) for parts in (before, after))
    expected = np.linalg.norm(b - a, axis=1) / np.linalg.norm(a, axis=1)
    assert_close(interventions.relative_change(before, after), torch.from_numpy(expected))
    assert interventions.relative_change(before, before).eq(0).all()


WRONG = {
    'a head': (lambda: interventions.zero(heads=[3])(heads(), SITE), r'heads=\[3\]: there are heads 0 to 2'),
    'a token': (lambda: interventions.zero(tokens=[-1])(heads(), SITE), r'tokens=\[-1\]: there are tokens 0 to 6'),
    'heads of tokens': (lambda: interventions.zero(heads=[0])(heads()[..., 0], SITE), 'has no heads to choose'),
    'tokens of maps': (lambda: interventions.zero(tokens=[0])(maps(), SITE), 'has no tokens to choose'),
    'a target': (lambda: interventions.redirected('cls'), "to='cls': expected 'self' or 'all'"),
    'shuffled maps': (lambda: interventions.shuffled()(maps(), SITE), "shuffled: is for .* 'heads'"),
}


@pytest.mark.parametrize('case', WRONG)
def test_wrong_edits_are_refused(case):
    make, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        make()
