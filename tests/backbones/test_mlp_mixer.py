"""MLP-Mixer is mmpretrain's: same keys, same numbers."""

import copy

import mmpretrain.models as stock
import pytest
import torch
from cases import MIXER_ARCH, images, mixer, randomize
from torch.testing import assert_close

from vitplug.backbones import MlpMixer

VARIANTS = {
    'default': dict(),
    'other-layers': dict(out_indices=[-3, -1]),
    'overlap': dict(patch_cfg=dict(kernel_size=9, stride=6, padding=2)),
    'three-fcs': dict(layer_cfgs=dict(num_fcs=3), act_cfg=dict(type='ReLU')),
    'square': dict(img_size=20),  # padded to whole patches
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_equals_mmpretrain(variant):
    settings = dict(arch=MIXER_ARCH, img_size=(32, 48), patch_size=8) | VARIANTS[variant]
    theirs = randomize(stock.MlpMixer(**copy.deepcopy(settings))).double()
    theirs.eval()
    ours = MlpMixer(**copy.deepcopy(settings)).double().eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x = images(*ours.fixed_size)
    expected, got = theirs(x), ours(x)
    assert_close(got, expected, rtol=1e-12, atol=1e-12)
    for outs in (expected, got):
        sum(out.square().sum() for out in outs).backward()
    for name, parameter in theirs.named_parameters():
        assert_close(ours.get_parameter(name).grad, parameter.grad, rtol=1e-9, atol=1e-9)


def drop_paths(model):
    """The rate of every MLP's stochastic depth."""
    return [module.drop_prob for module in model.modules() if type(module).__name__ == 'DropPath']


@pytest.mark.parametrize('layer_cfgs', [dict(), [dict(drop_path_rate=0.5), *[dict()] * (MIXER_ARCH['num_layers'] - 1)]])
def test_stochastic_depth_is_the_same_in_all_blocks_as_in_mmpretrain(layer_cfgs):
    settings = dict(arch=MIXER_ARCH, img_size=16, patch_size=8, drop_path_rate=0.2, layer_cfgs=layer_cfgs)
    expected = drop_paths(stock.MlpMixer(**copy.deepcopy(settings)))
    assert drop_paths(MlpMixer(**settings)) == expected
    assert expected[2:] == [0.2] * (2 * MIXER_ARCH['num_layers'] - 2)


def test_one_map_for_dense_heads():
    tokens, model = mixer(out_type='tokens'), mixer(out_type='featmap', out_indices=[0, -1])
    model.load_state_dict(tokens.state_dict())
    x = images(32, 48, dtype=torch.float32)
    maps = model(x)
    assert [out.shape for out in maps] == [(2, 24, 4, 6)] * 2
    assert torch.equal(maps[1].flatten(2), tokens(x)[0])
