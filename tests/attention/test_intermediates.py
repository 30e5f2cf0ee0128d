"""What a block hands out by name: shapes and meaning on every host, at once to a callback, and with gradients."""

import copy
import math
import weakref

import pytest
import torch
from attention_oracle import gradients
from cases import HOSTS, ONE_GRID_HOSTS, PLUGS, images, randomize, vit
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, fused_attention
from vitplug.attention.intermediates import MAPS

SIZE = (40, 56)
SETS = {name: PLUGS[name] for name in ('none', 'cb-upper-everywhere', 'gab', 'residual', 'refiner', 'broad')}
SETS |= {name: PLUGS[name] for name in ('talking-heads', 'gated-attention', 'value-residual')}
SETS['uniform'] = [dict(type='UniformHead', mode='append')]
SETS['residual-sum'] = PLUGS['residual-low-memory-bias']
EVERYWHERE = pytest.mark.parametrize('host', ONE_GRID_HOSTS)
WITH_PLUGS = pytest.mark.parametrize('plugs', SETS)


def build(host, plugs, **settings):
    return randomize(HOSTS[host](plugs=copy.deepcopy(SETS[plugs]), **settings)).double().eval()


def inputs_of(modules):
    """A list that takes the tokens which enter each module."""
    entered = []
    for module in modules:
        module.register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    return entered


def attention_of(block):
    return getattr(block.attn, 'w_msa', block.attn)


def assert_branches_add_up(model, x):
    entered = inputs_of(model.plugged_blocks())
    _, found = model.forward_intermediates(x, ('attn', 'mlp', 'block'))
    for index, block in enumerate(model.plugged_blocks()):
        branches = [found[name][index] for name in ('attn', 'mlp') if index in found.get(name, ())]
        assert len(branches) == len(block.shape.branches)
        assert all(branch.shape == entered[index].shape for branch in branches)
        assert_close(entered[index] + sum(branches), found['block'][index])


@EVERYWHERE
@WITH_PLUGS
def test_branches_are_what_the_block_adds(host, plugs):
    assert_branches_add_up(build(host, plugs), images(*SIZE))


VARIANTS = {
    'stochastic depth and dropout': dict(drop_path_rate=0.5, drop_rate=0.2, layer_scale_init_value=0.5),
    'SwiGLU': dict(layer_cfgs=dict(ffn_type='swiglu_fused', layer_scale_init_value=0.5)),
    'a branch alone': dict(layer_cfgs=[dict(with_attn=False), dict(with_ffn=False), {}, {}]),
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_branches_of_other_blocks(variant):
    model = randomize(vit(**VARIANTS[variant])).double().train()
    torch.manual_seed(0)
    assert_branches_add_up(model, images(*SIZE))


@EVERYWHERE
@WITH_PLUGS
def test_heads_and_maps_have_the_shapes_of_the_site(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    for fused in (True, False):
        with fused_attention(fused):
            outs, found = model.forward_intermediates(x, ('q', 'k', 'v', *MAPS, 'site'))
        assert_close(outs, model(x))
        for index, block in enumerate(model.plugged_blocks()):
            shape, site = block.shape, found['site'][index]
            assert site.index == index
            windows, tokens = math.prod(site.layout.windows), site.layout.grid.num_tokens
            for name, heads in (('q', shape.map_heads), ('k', shape.map_heads), ('v', shape.value_heads)):
                assert found[name][index].shape == (2, windows, heads, tokens, shape.head_dims)
            scores = found['scores'][index]
            assert scores.shape == (2, windows, shape.map_heads, tokens, tokens)
            q, k = found['q'][index], found['k'][index]
            assert_close(scores, q @ k.transpose(-2, -1) * attention_of(block).scale)
            if plugs in ('none', 'gab', 'cb-upper-everywhere', 'gated-attention'):
                bias, mask = found.get('bias', {}).get(index, 0.0), 0.0 if site.mask is None else site.mask.unsqueeze(2)
                assert_close(found['logits'][index], scores + bias + mask)


# --- at once ---

LARGE = ('scores', 'logits', 'probs', 'maps')
# A plug that hands a tensor on keeps it itself.
LETS_GO = {
    **{name: LARGE for name in ('none', 'gab', 'refiner', 'talking-heads')},
    **{name: ('probs', 'maps') for name in ('residual', 'broad')},
}


@EVERYWHERE
@pytest.mark.parametrize('plugs', LETS_GO)
@pytest.mark.parametrize('fused', [True, False], ids=['fused', 'plain'])
@torch.no_grad()
def test_reduce_is_called_at_once_and_nothing_is_kept(host, plugs, fused):
    """Weak references: when a block's maps come, those of all blocks before are gone."""
    model, given, calls = build(host, plugs), {}, []

    def reduce(name, tensor, site):
        earlier = [ref() for (_, index), ref in given.items() if index < site.index]
        assert all(tensor is None for tensor in earlier)
        given[name, site.index] = weakref.ref(tensor)
        calls.append((name, site.index))
        return tensor.mean().item()

    with fused_attention(fused):
        outs, found = model.forward_intermediates(images(*SIZE), (*LETS_GO[plugs], 'site'), reduce=reduce)
        kept = model.forward_intermediates(images(*SIZE), LETS_GO[plugs])[1]
    assert [ref() for ref in given.values()] == [None] * len(given)
    blocks = range(len(model.plugged_blocks()))
    assert sorted(calls) == sorted((name, index) for name in LETS_GO[plugs] for index in blocks)
    assert [index for _, index in calls] == sorted(index for _, index in calls)
    assert_close(outs, model(images(*SIZE)))
    means = {name: {i: t.mean().item() for i, t in by_block.items()} for name, by_block in kept.items()}
    assert {name: values for name, values in found.items() if name != 'site'} == means
    assert [site.index for site in found['site'].values()] == list(blocks)


@EVERYWHERE
def test_reduce_is_told_where_the_tensors_are(host):
    """Broad attention sees the whole image, whatever the windows of the last block."""
    model, sites = build(host, 'broad'), {}
    names = ('q', 'probs', 'attn', 'mlp', 'block', 'broad_probs')
    model.forward_intermediates(images(*SIZE), names, [3], reduce=lambda name, _, site: sites.update({name: site}))
    (layout, _), _ = model.place_maps(3, SIZE)
    assert {name: site.layout for name, site in sites.items()} == {
        **dict.fromkeys(names, layout),
        'broad_probs': GlobalLayout(*layout.hw, layout.num_prefix),
    }


# --- gradients ---


@EVERYWHERE
@WITH_PLUGS
def test_kept_gradients_are_autograds(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    names = ('q', 'k', 'v', *MAPS, 'attn', 'mlp', 'block', 'broad_probs')
    outs, found = model.forward_intermediates(x, names, with_grad=True)
    weights = [torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) for out in outs]
    torch.autograd.backward(outs, weights)
    with fused_attention(False):
        plain_outs, plain = model.forward_intermediates(x, names)
    tensors = [(name, index) for name, by_block in plain.items() for index in by_block]
    grads = gradients(plain_outs, [plain[name][index] for name, index in tensors])
    assert {name for name, _ in tensors} >= {'q', 'k', 'v', 'scores', 'logits', 'probs', 'maps', 'attn', 'mlp', 'block'}
    for (name, index), grad in zip(tensors, grads, strict=True):
        assert_close(found[name][index].grad, grad, msg=lambda text, at=(name, index): f'{at}: {text}')
        assert grad.any()


def test_gradients_of_checkpointed_blocks_are_those_of_the_form_that_ran():
    """A backward pass comes after fused forms are allowed again."""
    found = []
    for with_cp in (False, True):
        model, x = build('vit', 'gab', with_cp=with_cp), images(*SIZE).requires_grad_()
        outs, _ = model.forward_intermediates(x, ('probs',), layers=[1], with_grad=True)
        loss = outs[-1].square().sum()
        found += [torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2)]  # as of two classes
    assert_close(found[1:], found[:-1])


def test_recording_gives_a_forward_of_ones_own_back():
    model, x, called = build('vit', 'none'), images(*SIZE), []
    own = model.forward = lambda images: called.append(1)
    with model.recording(model.recorder('block')):
        type(model).forward(model, x)
    assert model.forward is own
