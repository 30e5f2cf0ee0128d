"""Plugs start as their own code has them, whatever a model's `init_cfg` says of the layers around them."""

import math
from pathlib import Path

import pytest
import torch
from cases import HOSTS, PLUGS, randomize, vit
from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import Plug
from vitplug.registry import MODELS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
REACHED = 7.0
EVERYWHERE = dict(type='Constant', val=REACHED, bias=REACHED, layer=['Linear', 'Conv2d', 'BatchNorm2d', 'LayerNorm'])
LIKE_DEIT = dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)


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


def spread(biases_Hyx: torch.Tensor) -> float:
    """Standard deviation of a bias over the offsets, on average over the heads."""
    return biases_Hyx.flatten(1).std(dim=1).mean().item()


def bias_of_fresh_layers(heads: int, side: int) -> torch.Tensor:
    """The position network of the GAB paper's script, of two new `nn.Linear`: `(H, 2 side - 1, 2 side - 1)`."""
    offsets = [math.copysign(math.log(1 + abs(t)), t) for t in range(1 - side, side)]
    pairs = torch.tensor([[[y, x] for x in offsets] for y in offsets])
    return nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, heads))(pairs).permute(2, 0, 1).detach()


def build(path: str, **changes):
    cfg = Config.fromfile(CONFIGS / path)
    cfg.merge_from_dict({'model': changes, 'model.backbone.arch.feedforward_channels': 8})
    init_default_scope('mmpretrain')
    return MODELS.build(cfg.model)


@pytest.mark.parametrize(('transfer', 'init_cfg'), [(False, LIKE_DEIT), (True, None)], ids=['like DeiT', 'transfer'])
def test_position_network_of_the_configs_has_the_spread_of_fresh_layers(transfer, init_cfg, tmp_path):
    """With the start of DeiT it is more than 50 times smaller. A transfer draws the network anew and keeps the rest."""
    torch.manual_seed(0)
    changes, source = {}, None
    if transfer:
        source = build('gaussian_bias/vit-relpos-s-p16_1xb128-200e_pets.py', backbone=dict(init_cfg=None))
        torch.save(randomize(source).state_dict(), tmp_path / 'source.pth')
        changes = dict(backbone=dict(init_cfg=dict(checkpoint=str(tmp_path / 'source.pth'))))
    kind = '1xb128-200e_pets' if transfer else '8xb288-400e_in1k'
    if init_cfg:
        changes['init_cfg'] = init_cfg
    model = build(f'gaussian_bias/vit-relpos-s-p16-gab_{kind}.py', **changes)
    model.init_weights()
    networks = [layer.plugs['rel_pos_mlp']['bias'].eval() for layer in model.backbone.layers]
    got = torch.cat([network(Site(GlobalLayout(14, 14))).table for network in networks])
    expected = torch.cat([bias_of_fresh_layers(heads=6, side=14) for _ in range(100)])
    assert spread(got) == pytest.approx(spread(expected), rel=0.3)
    assert got.mean().abs() < 3 * expected.mean(dim=(1, 2)).std()
    if transfer:
        assert_close(model.backbone.layers[3].attn.qkv.weight, source.backbone.layers[3].attn.qkv.weight)


def test_loaded_plugs_are_not_drawn_again(tmp_path):
    plugs = [dict(type='RelPosMlp', hidden_dims=8), dict(type='SqueezeExcite', reduction=4)]
    source = randomize(vit(plugs=plugs))
    torch.save(source.state_dict(), tmp_path / 'source.pth')
    for kind in ('Pretrained', 'vitplug.Pretrained'):
        model = vit(plugs=plugs, init_cfg=dict(type=kind, checkpoint=str(tmp_path / 'source.pth')))
        model.init_weights()
        assert_close(model.state_dict(), source.state_dict())


class Quiet(Plug):
    """Sets the values of a layer of torch where it is built."""

    name = 'quiet'

    def build_layer(self, plan):
        linear = nn.Linear(plan.embed_dims, plan.embed_dims)
        nn.init.zeros_(linear.weight)
        nn.init.constant_(linear.bias, 0.5)
        return {'msa': linear}


def test_values_set_by_a_plug_stay():
    model = vit(plugs=[dict(type=Quiet)], init_cfg=EVERYWHERE)
    model.init_weights()
    for block in model.plugged_blocks():
        linear = block.plugs['quiet']['msa']
        assert linear.weight.eq(0).all() and linear.bias.eq(0.5).all()
    # What a user applies reaches them.
    model.apply(lambda module: nn.init.ones_(module.weight) if isinstance(module, nn.Linear) else None)
    assert all(block.plugs['quiet']['msa'].weight.eq(1).all() for block in model.plugged_blocks())
