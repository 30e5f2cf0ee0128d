"""What a plug may take: the sockets that a block or the network declares, and no others."""

import re

import pytest
import torch
from cases import CarryProbe, images, randomize, swin, vit
from mmengine.model import BaseModule
from torch import nn
from torch.testing import assert_close

from vitplug.backbones.base import PluggedBackbone, Section
from vitplug.backbones.ffn import PluggedFFN
from vitplug.backbones.patch_embed import build_patch_embed
from vitplug.backbones.plug_configs import build_plugs
from vitplug.plugs import BLOCK_SOCKETS, PLUG_TYPES, BlockShape, LayerPlan, LayerPlugs, Plug, PlugSet

DEPTH, DIMS, HIDDEN, SIDE = 2, 8, 12, 4
MLP_SOCKETS = ('mlp_front', 'mlp_mid', 'mlp_end')


class MixerBlock(BaseModule):
    """*MLP-Mixer*: an MLP over the tokens of each channel, then one over the channels of each token."""

    sockets = MLP_SOCKETS
    shape = BlockShape(head_dims=0, map_heads=0, value_heads=0, out_heads=0, hidden_dims=HIDDEN)
    with_cp = False

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIMS), nn.LayerNorm(DIMS)
        self.mix = nn.Linear(SIDE**2, SIDE**2)
        self.ffn = PluggedFFN(DIMS, HIDDEN, act_cfg=dict(type='GELU'))
        self.plugs = LayerPlugs()

    def forward(self, x, site, carry, record=None):
        x = x + self.mix(self.norm1(x).mT).mT
        return self.ffn(self.norm2(x), x, self.plugs, site, record), carry


class Mixer(PluggedBackbone):
    """A host without attention."""

    out_indices = (0,)

    def __init__(self, plugs):
        super().__init__(None, {})
        self.patch_embed = build_patch_embed(8 * SIDE, dict(in_channels=3, embed_dims=DIMS, kernel_size=8, stride=8))
        self.patch_resolution = self.patch_embed.init_out_size
        plug_set = PlugSet(build_plugs(plugs), DEPTH)
        for index in range(DEPTH):
            plug_set.shape_block(MixerBlock.shape, index)
        self.blocks = nn.ModuleList(MixerBlock() for _ in range(DEPTH))
        self.attach(plug_set)

    def embed(self, images):
        return self.patch_embed(images)

    def sections(self):
        return [Section(list(self.blocks), DIMS)]

    def format_output(self, section, x, hw):
        return x

    def freeze(self):
        pass


@pytest.mark.parametrize('type', ['ContextBroadcast', 'SqueezeExcite'])
def test_a_host_without_attention_takes_plugs_of_tokens(type):
    settings = dict(scaled=True, scale_init_value=0.5) if type == 'ContextBroadcast' else dict(reduction=2)
    model = randomize(Mixer([dict(type=type, position=list(MLP_SOCKETS), **settings)])).double()
    plain = Mixer([]).double()
    plain.load_state_dict(model.state_dict(), strict=False)
    x = images(8 * SIDE, 8 * SIDE)
    assert not torch.allclose(model(x)[0], plain(x)[0])
    model(x)[0].square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_context_broadcast_on_a_host_without_attention_is_its_equation():
    model = randomize(Mixer([dict(type='ContextBroadcast', position=list(MLP_SOCKETS))])).double()
    x = images(8 * SIDE, 8 * SIDE)
    tokens, _ = model.embed(x)

    def broadcast(t):
        return (t + t.mean(1, keepdim=True)) / 2

    for block in model.blocks:
        tokens = tokens + block.mix(block.norm1(tokens).mT).mT
        (fc1, act, _), fc2, _ = block.ffn.layers
        tokens = tokens + broadcast(fc2(broadcast(act(fc1(broadcast(block.norm2(tokens)))))))
    assert_close(model(x)[0], tokens)


OFFERED = re.escape(str(list(MLP_SOCKETS)))
REFUSED = {
    'a bias': (dict(type='GaussianAttentionBias'), f"gab takes the socket 'bias', .* block 0 .* offers {OFFERED}"),
    'a bias table': (dict(type='RelPosBias'), f"rel_pos_bias takes the socket 'bias', .* offers {OFFERED}"),
    'tokens of attention': (
        dict(type='ContextBroadcast', position=['mlp_end', 'msa'], layers=[1]),
        f"cb takes the socket 'msa', which block 1 does not offer; it offers {OFFERED}",
    ),
    'scores': (dict(type='ResidualAttention'), f"residual_attention takes the socket 'scores', .* offers {OFFERED}"),
    'maps': (dict(type='Refiner'), 'Refiner: block 0 has no attention map to refine'),
    'q, k and v': (dict(type='BroadAttention'), 'BroadAttention: block 0 has 0 heads with q and k'),
    'a head': (dict(type='UniformHead', mode='append'), 'UniformHead: block 0 has no attention'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_a_host_without_attention_refuses_plugs_of_attention(case):
    plug, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        Mixer([plug])


def taking(*sockets, of='layer'):
    """A plug that takes some sockets of its blocks, or of the network."""

    class Taker(Plug):
        name = 'taker'

        def build_layer(self, plan):
            return {socket: nn.Identity() for socket in sockets} if of == 'layer' else {}

        def build_network(self, plans):
            return {socket: nn.Identity() for socket in sockets} if of == 'network' else {}

    return [dict(type=Taker)]


BLOCK_LIST, NETWORK_LIST = (re.escape(str(list(names))) for names in (BLOCK_SOCKETS, ('start', 'prefix', 'finish')))


@pytest.mark.parametrize('host', [vit, swin, Mixer])
def test_sockets_that_do_not_exist(host):
    with pytest.raises(ValueError, match=f"taker takes the socket 'mpl_end' of block 0: unknown; .* {BLOCK_LIST}"):
        host(plugs=taking('mpl_end'))
    for name in ('begin', 'mlp_end'):  # one of a block is none of the network
        message = f"taker takes the socket '{name}' of the network: unknown; choose from {NETWORK_LIST}"
        with pytest.raises(ValueError, match=message):
            host(plugs=taking(name, of='network'))
    with pytest.raises(ValueError, match="taker takes the socket 'start' of block 0: unknown"):
        host(plugs=taking('start'))


def test_a_network_offers_what_it_declares():
    class Silent(Mixer):
        network_sockets = ('start',)

    with pytest.raises(ValueError, match=r"taker takes the socket 'finish', which the network .* offers \['start'\]"):
        Silent(taking('finish', of='network'))
    assert 'taker' in Silent(taking('start', of='network')).plugs


def test_sockets_are_declared_block_by_block():
    """As of a host that reduces its keys in some blocks, where q and k do not belong to the same tokens."""
    shape = BlockShape.stock(8, 2, 16)
    site = vit()._plans()[0].site
    plans = [LayerPlan(i, 2, 8, shape, site, sockets=sockets) for i, sockets in enumerate((BLOCK_SOCKETS, ('msa',)))]
    (probe,) = build_plugs([dict(type=CarryProbe, layers=[0])])
    PlugSet([probe], 2).build(plans)
    (probe,) = build_plugs([dict(type=CarryProbe, layers=[1])])
    with pytest.raises(ValueError, match=r"probe takes the socket '(bias|scores|map)', which block 1 .* offers \['msa"):
        PlugSet([probe], 2).build(plans)


SHARED = dict(type='Refiner', share=1)
WITHOUT = dict(layer_cfgs=[{}, dict(with_attn=False), {}, {}])


def test_no_attention_and_the_map_of_an_earlier_block_are_two_things():
    gab = dict(type='GaussianAttentionBias', layers=[1])
    with pytest.raises(ValueError, match=r"\['gab'\] change the attention branch of block 1, which has none"):
        vit(plugs=[gab], **WITHOUT)
    with pytest.raises(ValueError, match=r"\['gab'\] need q and k of block 1, .* reuses the map of an earlier block"):
        vit(plugs=[gab, SHARED])
    at_msa = dict(type='ContextBroadcast', position='msa', layers=[1])
    assert vit(plugs=[at_msa, SHARED]).layers[1].plugs.at('msa')
    with pytest.raises(ValueError, match=r"\['cb'\] change the attention branch of block 1, which has none"):
        vit(plugs=[at_msa], **WITHOUT)


@pytest.mark.parametrize('plug', [plug for plug in PLUG_TYPES if plug.__name__ != 'UniformHead'], ids=lambda p: p.name)
def test_all_plugs_take_declared_sockets_only(plug):
    """A block that offers nothing refuses every plug, by its name."""
    shape, site = BlockShape.stock(32, 2, 32), vit()._plans()[0].site
    plans = [LayerPlan(i, 2, 32, shape, site, sockets=()) for i in range(2)]
    with pytest.raises(ValueError, match=rf"{plug.name} takes the socket '\w+', which block 0 .* it offers \[\]"):
        PlugSet([plug()], 2).build(plans)
