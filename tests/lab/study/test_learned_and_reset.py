"""Statistics of learned values by hand, and re-initialisation that changes what it says and nothing else."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from cases import mixer, mvit_with_class_token, pit, randomize, swin, swin_padding_small_maps, swin_v2, t2t, vit
from torch import nn
from torch.testing import assert_close

from vitplug.lab.study.edits import reset_copy
from vitplug.lab.study.measures.learned import learned_statistics


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ([3.0, -1, 0, 10, -9, 8, 7, 6, -5, 4, 2], 1 / 9),  # of 0 to 10: the quantiles are 1 and 9; signs do not count
        ([1.0, 2.0], 1.1 / 1.9),  # between the two, linearly
        ([0.0] * 4, math.nan),
    ],
)
def test_quantiles_by_hand(values, expected):
    backbone = SimpleNamespace(learned_values=lambda: {'cb.Lambda.mlp_end': {0: torch.tensor(values)}})
    found = learned_statistics(backbone)['cb.Lambda.mlp_end, quantile ratio']
    assert found[0] == pytest.approx(expected, nan_ok=True)


def test_statistics_of_plugs():
    torch.manual_seed(0)
    plugs = [
        dict(type='GaussianAttentionBias', per_head=True, layers=[1, 3]),
        dict(type='ContextBroadcast', scaled=True, layers='upper'),
        dict(type='ResidualAttention', alpha=0.25, per_layer=True),
    ]
    model = vit(plugs=plugs)
    with torch.no_grad():
        model.plugged_blocks()[1].plugs['gab'].bias.gab_sigma.copy_(torch.tensor([1.0, 2.0, 6.0]))
    found = learned_statistics(model)
    sigmas = dict(mean=3, min=1, max=6)
    assert {name: found[f'gab.sigma, {name}'][1] for name in sigmas} == sigmas
    assert list(found['cb.Lambda, mean']) == list(found['cb.Lambda, quantile ratio']) == [2, 3]
    assert list(found['residual_attention.alpha, mean'].values()) == pytest.approx([0.25] * 3)


def test_an_alpha_that_blocks_share_is_given_at_each():
    shared = [dict(type='ResidualAttention', alpha=0.25)]
    assert learned_statistics(vit(plugs=shared))['residual_attention.alpha, mean'] == dict.fromkeys(range(4), 0.25)
    assert learned_statistics(vit()) == {}


MLP, TABLE = dict(type='RelPosMlp', layers=[0, 2]), dict(type='RelPosBias', layers=[1])


@pytest.mark.parametrize(
    ('build', 'kind', 'count'),
    [
        (vit, 'ape', 1),
        (t2t, 'ape-random', 1),
        (pit, 'ape-random', 1),
        (mvit_with_class_token, 'ape', 1),
        (swin_padding_small_maps, 'ape', 1),
        (swin, 'table', 4),
        (swin_v2, 'mlp', 12),
        (lambda: vit(plugs=[MLP, TABLE]), 'mlp', 8),
        (lambda: vit(plugs=[MLP, TABLE]), 'table', 1),
    ],
)
def test_reset_changes_what_it_says_and_nothing_else(build, kind, count):
    model = randomize(build())
    before, stream = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    changed, names = reset_copy(model, kind)
    assert torch.equal(torch.random.get_rng_state(), stream)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    now = changed.state_dict()
    assert sorted(key for key in before if not torch.equal(now[key], before[key])) == sorted(names)
    again, _ = reset_copy(model, kind)
    other, _ = reset_copy(model, kind, seed=1)
    for name in names:
        assert torch.equal(again.state_dict()[name], now[name])
        assert kind == 'ape' or not torch.equal(other.state_dict()[name], now[name])
        assert kind != 'ape' or not now[name].any()
        if kind in ('ape-random', 'table'):
            # Tables as the GAB paper's authors draw them: a normal distribution of 1, cut at 2.
            least, most = (0.005, 0.04) if kind == 'ape-random' else (0.5, 1.2)
            assert least < now[name].std() < most
            assert now[name].abs().max() < 2.1
    assert len(names) == len(set(names)) == count


def test_reset_of_other_libraries_models():
    """By the names that timm gives."""
    model = nn.Module()
    model.pos_embed = nn.Parameter(torch.ones(1, 5, 4))
    model.attn = nn.Module()
    model.attn.rel_pos = nn.Module()
    model.attn.rel_pos.mlp = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    model.attn.qkv = nn.Linear(4, 12)
    assert reset_copy(model, 'ape')[1] == ['pos_embed']
    expected = [f'attn.rel_pos.mlp.{layer}.{key}' for layer in (0, 2) for key in ('weight', 'bias')]
    assert reset_copy(model, 'mlp')[1] == expected


def test_resets_that_do_not_apply():
    with pytest.raises(ValueError, match="reset 'abs': expected one of ape, ape-random, mlp, table"):
        reset_copy(vit(), 'abs')
    with pytest.raises(ValueError, match="reset 'ape': MlpMixer has no parameters for it"):
        reset_copy(mixer(), 'ape')
