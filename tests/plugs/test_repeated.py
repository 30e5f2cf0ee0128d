"""A plug more than once, with other settings, for blocks that have none in common."""

import copy

import pytest
import torch
from cases import images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.attention import Site, fused_attention
from vitplug.checkpoints.settings import compare

SIZE = (32, 32)
HOSTS = {'vit': vit, 'swin': swin}
LOW, HIGH = [0, 1], [2, 3]
REPEATED = {
    'cb': [
        dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3, position='mlp_mid', layers=LOW),
        dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3, position='mlp_end', layers=HIGH),
    ],
    'gab': [
        dict(type='GaussianAttentionBias', sigma=2.0, layers=LOW),
        dict(type='GaussianAttentionBias', sigma=3.0, per_head=True, layers=HIGH),
    ],
    'residual_attention': [
        dict(type='ResidualAttention', alpha=0.3, layers=LOW),
        dict(type='ResidualAttention', alpha=0.8, bias_mode='blend', layers=HIGH),
    ],
    'refiner': [
        dict(type='Refiner', expansion=2, layers=LOW),
        dict(type='Refiner', expansion=1, kernel_size=5, layers=HIGH),
    ],
    'uniform_head': [
        dict(type='UniformHead', mode='append', layers=LOW),
        dict(type='UniformHead', mode='replace', layers=HIGH),
    ],
}


def build(host, plugs):
    return randomize(HOSTS[host](plugs=copy.deepcopy(plugs)), seed=4).double().eval()


def renamed(state, name):
    """The keys of a second plug as those of one that is alone."""
    return {key.replace(f'plugs.{name}_2.', f'plugs.{name}.'): value for key, value in state.items()}


def through_blocks(model, x, hw, blocks):
    """Tokens after some blocks of a model."""
    carry = model.plugs.start()
    for index in blocks:
        x, carry = model.layers[index](x, Site(model.layout(index, hw), index=index), carry)
    return x


@pytest.mark.parametrize('name', REPEATED)
def test_each_acts_as_if_it_were_alone(name):
    """The oracle: the lower blocks of a model that has the first plug alone, the upper of one with the second alone."""
    model, plugs = build('vit', REPEATED[name]), REPEATED[name]
    state = model.state_dict()
    alone = [vit(plugs=[copy.deepcopy(plug)]).double().eval() for plug in plugs]
    for number, other in enumerate(alone):
        own = renamed(state, name) if number else state
        shapes = {key: value.shape for key, value in other.state_dict().items()}
        other.load_state_dict({key: own[key] for key in shapes if key in own and own[key].shape == shapes[key]}, False)
    for fused in (True, False):
        with fused_attention(fused):
            (got,) = model(images(*SIZE))
            tokens, hw = model.embed(images(*SIZE))
            for other, blocks in zip(alone, (LOW, HIGH), strict=True):
                tokens = through_blocks(other, tokens, hw, blocks)
            assert_close(got, model.format_output(3, tokens, hw))


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('name', REPEATED)
def test_names_follow_the_blocks_and_not_the_config(host, name):
    model, turned = build(host, REPEATED[name]), build(host, REPEATED[name][::-1])
    assert list(model.state_dict()) == list(turned.state_dict())
    assert_close(turned(images(*SIZE)), model(images(*SIZE)), rtol=0, atol=0)
    owners = [[plug for plug in block.plugs if plug.startswith(name)] for block in model.plugged_blocks()]
    if name != 'uniform_head':  # which has no modules
        assert owners == [[name]] * 2 + [[f'{name}_2']] * 2
    fresh = HOSTS[host](plugs=copy.deepcopy(REPEATED[name][::-1])).double().eval()
    fresh.load_state_dict(model.state_dict())
    assert_close(fresh(images(*SIZE)), model(images(*SIZE)), rtol=0, atol=0)


def test_two_broad_attentions_add_up():
    """On stages, each takes the last of its own blocks."""
    plugs = [dict(type='BroadAttention', gamma=g, layers=own) for g, own in ((0.4, [0, 2]), (1, [1, 3]))]
    models = [randomize(swin(plugs=some, norm_cfg=None)).double() for some in (plugs, plugs[:1], plugs[1:], [])]
    both, first, second, neither = (model(images(*SIZE))[1] for model in models)
    assert_close(both, first + second - neither)
    assert not torch.allclose(first, neither) and not torch.allclose(second, neither)


# --- names, values and what is stored ---


def test_values_are_named_by_both():
    plugs = [
        *REPEATED['gab'],
        dict(type='ResidualAttention', constraint='sigmoid', layers=LOW),
        dict(type='ResidualAttention', layers=HIGH),
        dict(type='ContextBroadcast', scaled=True, layers='upper'),
        dict(type='ContextBroadcast', scaled=True, layers=[0]),
    ]
    model = randomize(vit(plugs=plugs))
    found = model.learned_values()
    blocks = {name: set(by_block) for name, by_block in found.items()}
    alphas = ('residual_attention', 'residual_attention_2')
    assert blocks == {
        **{f'gab.{symbol}': {0, 1} for symbol in ('A', 'sigma')},
        **{f'gab_2.{symbol}': {2, 3} for symbol in ('A', 'sigma')},
        **{f'{name}.alpha': {None} for name in alphas},
        'cb.Lambda': {0},
        'cb_2.Lambda': {2, 3},
    }
    raw = model.plugs['residual_attention']['start'].alpha.residual_alpha
    assert_close(found['residual_attention.alpha'][None], raw.detach().sigmoid())


def test_a_checkpoint_of_other_settings_is_told_apart():
    """Two plugs of a type are compared by their blocks; their order means nothing."""
    before = dict(plugs=copy.deepcopy(REPEATED['gab']))
    turned = dict(plugs=[dict(plug, layers=tuple(plug['layers'])) for plug in REPEATED['gab'][::-1]])
    assert list(compare(before, turned, lambda name: None)) == []
    for number, layers in enumerate(('[0, 1]', '[2, 3]')):
        after = copy.deepcopy(before)
        old, after['plugs'][number]['sigma'] = after['plugs'][number]['sigma'], 9.0
        found = list(compare(before, after, lambda name: None))
        assert found == [(f'plugs.GaussianAttentionBias{layers}.sigma', old, 9.0)]
