"""Plugs start as their own code has them, whatever a model's `init_cfg` says of the layers around them."""

import pytest
import torch
from cases import HOSTS, PLUGS, randomize, vit
from torch.testing import assert_close

REACHED = 7.0
EVERYWHERE = dict(type='Constant', val=REACHED, bias=REACHED, layer=['Linear', 'Conv2d', 'BatchNorm2d', 'LayerNorm'])


def plug_state(model) -> dict[str, torch.Tensor]:
    """Parameters and buffers of all plugs by their names in a block, those of all blocks side by side."""
    found = {}
    for block in model.plugged_blocks():
        for name, value in block.plugs.state_dict().items():
            found.setdefault(name, []).append(value.flatten().float())
    for name, value in model.plugs.state_dict().items():
        found.setdefault(f'network.{name}', []).append(value.flatten().float())
    return {name: torch.cat(values) for name, values in found.items()}


@pytest.mark.parametrize('host', ['vit', 'swin'])
@pytest.mark.parametrize('case', [case for case in PLUGS if plug_state(vit(plugs=PLUGS[case]))])
def test_init_cfg_does_not_reach_plugs(host, case):
    torch.manual_seed(0)
    model = HOSTS[host](plugs=PLUGS[case], init_cfg=EVERYWHERE)
    model.init_weights()
    assert (model.patch_embed.projection.weight == REACHED).all()
    built, again = plug_state(HOSTS[host](plugs=PLUGS[case])), plug_state(HOSTS[host](plugs=PLUGS[case]))
    for name, value in plug_state(model).items():
        if torch.equal(built[name], again[name]):
            assert torch.equal(value, built[name]), name
        else:
            assert value.abs().max() < REACHED
            assert 0.5 < value.square().mean().sqrt() / built[name].square().mean().sqrt() < 2, name


def test_loaded_plugs_are_not_drawn_again(tmp_path):
    plugs = [dict(type='RelPosMlp', hidden_dims=8), dict(type='SqueezeExcite', reduction=4)]
    source = randomize(vit(plugs=plugs))
    torch.save(source.state_dict(), tmp_path / 'source.pth')
    for kind in ('Pretrained', 'vitplug.Pretrained'):
        model = vit(plugs=plugs, init_cfg=dict(type=kind, checkpoint=str(tmp_path / 'source.pth')))
        model.init_weights()
        assert_close(model.state_dict(), source.state_dict())
