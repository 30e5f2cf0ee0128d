"""Edits of intermediates: identity, zero, what is recorded, and that nothing stays behind, on every host."""

import pytest
import torch
from cases import HOSTS, PLUGS, TOKEN_HOSTS, images, mvit, randomize, swin, swin_v2, vit
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.hosting import EDITABLE

SIZE = (40, 56)
ALL_HOSTS = {**HOSTS, **TOKEN_HOSTS}
SETS = ('none', 'gab', 'residual', 'refiner', 'broad', 'sink', 'value-residual')


def build(make, plugs='none', **settings):
    return randomize(make(plugs=[dict(plug) for plug in PLUGS[plugs]], **settings)).double().eval()


def editable(model, name):
    """The blocks that have an intermediate, by trying."""
    found = []
    for index in range(len(model.plugged_blocks())):
        try:
            with model.edited({name: {index: keep}}):
                found.append(index)
        except ValueError:
            continue
    return found


def edited_outs(model, x, edits):
    with model.edited(edits):
        return model(x)


def keep(tensor, site):
    return tensor


def nothing(tensor, site):
    return torch.zeros_like(tensor)


def same_outs(a, b, exact):
    assert_close(a, b, rtol=0 if exact else 1e-10, atol=0 if exact else 1e-12)


@pytest.mark.parametrize('host', ALL_HOSTS)
@torch.no_grad()
def test_identity_changes_nothing(host):
    """Bit for bit, but for maps, which leave the fused form: as close as the two forms are."""
    model = build(ALL_HOSTS[host])
    x = images(32, 48)
    before, keys = model(x), list(model.state_dict())
    for name in EDITABLE:
        edits = {name: dict.fromkeys(editable(model, name), keep)}
        with fused_attention(name != 'maps'):
            same_outs(edited_outs(model, x, edits), model(x), exact=True)
        same_outs(edited_outs(model, x, edits), before, exact=name != 'maps')
    assert list(model.state_dict()) == keys
    same_outs(model(x), before, exact=True)


@pytest.mark.parametrize('plugs', SETS)
@pytest.mark.parametrize('make', [vit, swin], ids=['vit', 'swin'])
@torch.no_grad()
def test_identity_and_recorded_values_with_plugs(make, plugs):
    """An edit sees what is recorded, and what is recorded is the edited."""
    model, x = build(make, plugs), images(*SIZE)
    before, found = model.forward_intermediates(x, tuple(EDITABLE))
    seen = {name: {} for name in EDITABLE}

    def watch(name, index):
        def edit(tensor, site):
            assert site.index == index
            seen[name][index] = tensor
            return tensor

        return edit

    blocks = range(len(model.plugged_blocks()))
    same_outs(edited_outs(model, x, {name: {i: watch(name, i) for i in blocks} for name in EDITABLE}), before, False)
    for name in EDITABLE:
        assert list(seen[name]) == list(found[name]) == list(blocks)
        for index in blocks:
            assert_close(seen[name][index], found[name][index])
    with model.edited({name: {1: lambda tensor, site: 2 * tensor} for name in ('v', 'maps', 'heads', 'mlp', 'block')}):
        _, changed = model.forward_intermediates(x, ('v', 'maps', 'heads', 'mlp', 'block', 'attn'), layers=[1])
    assert_close(changed['v'][1], 2 * found['v'][1])
    assert_close(changed['maps'][1], 2 * found['maps'][1])


@pytest.mark.parametrize('make', [vit, swin, swin_v2], ids=['vit', 'swin', 'swin-v2'])
@torch.no_grad()
def test_one_head_by_hand(make):
    """The branch without a head: the projection without the columns of the head's output."""
    model, x = build(make), images(*SIZE)
    attention = model.plugged_blocks()[0].attn
    attention = getattr(attention, 'w_msa', attention)

    def without_head(heads, site):
        return heads * torch.tensor([0.0] + [1.0] * (heads.shape[2] - 1))[:, None]

    outs = edited_outs(model, x, {'heads': {0: without_head}})
    attention.proj.weight[:, : attention.head_dims] = 0
    same_outs(outs, model(x), exact=False)


@torch.no_grad()
def test_maps_with_keys_of_no_token():
    """A learned sink is a key more, which an edit of maps does not see and keeps."""
    model, x, shapes = build(vit, 'sink'), images(*SIZE), []

    def edit(maps, site):
        shapes.append(maps.shape[-1])
        assert (maps.sum(-1) < 1).all()
        return 0 * maps

    _, found = model.forward_intermediates(x, ('maps', 'v'), layers=[0])
    outs = edited_outs(model, x, {'maps': {0: edit}})
    assert shapes == [found['v'][0].shape[3]]
    assert not torch.equal(outs[0], model(x)[0])


@torch.no_grad()
def test_edits_inside_edits_and_after_errors():
    model, x = build(vit), images(*SIZE)
    before = model(x)[0]
    calls = []

    def noting(word):
        def edit(tensor, site):
            calls.append(word)
            return tensor

        return edit

    with model.edited({'block': {0: noting('outer')}}), model.edited({'block': {0: noting('inner')}}):
        model(x)
    assert calls == ['outer', 'inner']
    with pytest.raises(ValueError, match=r"edit of 'block' in block 2: gave \(2, 3\), expected a tensor \(2, 36, 24\)"):
        edited_outs(model, x, {'block': {2: lambda tensor, site: torch.zeros(2, 3)}})
    assert torch.equal(model(x)[0], before)
    assert not any(key.startswith('edits') for block in model.plugged_blocks() for key in block.plugs)


@pytest.mark.parametrize('make', [vit, swin], ids=['vit', 'swin'])
def test_gradients_of_checkpointed_blocks_are_those_of_the_edited_forward(make):
    """A backward pass comes after the edits are gone."""
    found = []
    for with_cp in (False, True):
        model, x = build(make, with_cp=with_cp), images(*SIZE).requires_grad_()
        outs = edited_outs(model, x, {'attn': {1: nothing}, 'block': {2: lambda tensor, site: tensor.square()}})
        found.append(torch.autograd.grad(outs[-1].square().sum(), x)[0])
        assert all(block.with_cp == with_cp for block in model.plugged_blocks())
    assert_close(found[1], found[0])


@pytest.mark.parametrize(
    ('make', 'settings', 'edits', 'message'),
    [
        (vit, {}, {'probs': {0: keep}}, r"edits of \['probs'\]: no such intermediates; choose from \['q', 'k', 'v'"),
        (vit, dict(plugs='refiner(share=1)'), {'q': {1: keep}}, r"'q' in block 1: it has none; blocks \[0, 2\] have"),
        (mvit, {}, {'q': {1: keep}}, "edits of 'q' in block 1: it adds its queries to the output, .*; edit 'maps' or"),
    ],
    ids=['name', 'no queries', 'queries in the output'],
)
def test_wrong_edits_are_refused(make, settings, edits, message):
    with pytest.raises(ValueError, match=message):
        edited_outs(make(**settings), images(*SIZE), edits)
