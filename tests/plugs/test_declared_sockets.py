"""What a plug may take: the sockets that a block or the network declares, and no others."""

import re

import pytest
import torch
from cases import CarryProbe, images, mixer, randomize, swin, vit
from torch import nn
from torch.testing import assert_close

from vitplug.backbones import MlpMixer
from vitplug.backbones.plug_configs import build_plugs
from vitplug.plugs import BLOCK_SOCKETS, PLUG_TYPES, BlockShape, LayerPlan, Plug, PlugSet, Registers

MLP_SOCKETS = ('mlp_front', 'mlp_mid', 'mlp_end')


@pytest.mark.parametrize('type', ['ContextBroadcast', 'SqueezeExcite'])
def test_a_host_without_attention_takes_plugs_of_tokens(type):
    settings = dict(scaled=True, scale_init_value=0.5) if type == 'ContextBroadcast' else dict(reduction=2)
    model = randomize(mixer(plugs=[dict(type=type, position=list(MLP_SOCKETS), **settings)])).double()
    plain = mixer().double()
    plain.load_state_dict(model.state_dict(), strict=False)
    x = images(*model.fixed_size)
    assert not torch.allclose(model(x)[0], plain(x)[0])
    model(x)[0].square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_context_broadcast_on_a_host_without_attention_is_its_equation():
    """In the MLP over channels alone."""
    model = randomize(mixer(plugs=[dict(type='ContextBroadcast', position=list(MLP_SOCKETS))])).double()
    x = images(*model.fixed_size)
    tokens, _ = model.embed(x)

    def broadcast(t):
        return (t + t.mean(1, keepdim=True)) / 2

    for block in model.layers:
        (fc1, act, _), fc2, _ = block.token_mix.layers
        tokens = tokens + fc2(act(fc1(block.ln1(tokens).mT))).mT
        (fc1, act, _), fc2, _ = block.channel_mix.layers
        tokens = tokens + broadcast(fc2(broadcast(act(fc1(broadcast(block.ln2(tokens)))))))
    assert_close(model(x)[0], model.ln1(tokens).mT)


OFFERED = re.escape(str([*MLP_SOCKETS, 'mlp_residual', 'block_in', 'block_out']))
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
        mixer(plugs=[plug])


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


@pytest.mark.parametrize('host', [vit, swin, mixer])
def test_sockets_that_do_not_exist(host):
    with pytest.raises(ValueError, match=f"taker takes the socket 'mpl_end' of block 0: unknown; .* {BLOCK_LIST}"):
        host(plugs=taking('mpl_end'))
    for name in ('begin', 'mlp_end'):  # one of a block is none of the network
        message = f"taker takes the socket '{name}' of the network: unknown; choose from {NETWORK_LIST}"
        with pytest.raises(ValueError, match=message):
            host(plugs=taking(name, of='network'))
    with pytest.raises(ValueError, match="taker takes the socket 'start' of block 0: unknown"):
        host(plugs=taking('start'))


def test_a_network_offers_what_it_declares(monkeypatch):
    with pytest.raises(ValueError, match=r"registers takes the socket 'prefix', which the network .* \['start', 'fini"):
        mixer(plugs=[dict(type=Registers)])
    monkeypatch.setattr(MlpMixer, 'network_sockets', ('start',))
    with pytest.raises(ValueError, match=r"taker takes the socket 'finish', which the network .* offers \['start'\]"):
        mixer(plugs=taking('finish', of='network'))
    assert 'taker' in mixer(plugs=taking('start', of='network')).plugs


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


# The others take no socket of a block.
OF_BLOCKS = [plug for plug in PLUG_TYPES if plug.__name__ not in ('UniformHead', 'Registers')]


@pytest.mark.parametrize('plug', OF_BLOCKS, ids=lambda p: p.name)
def test_all_plugs_take_declared_sockets_only(plug):
    """A block that offers nothing refuses every plug, by its name."""
    shape, site = BlockShape.stock(32, 2, 32), vit()._plans()[0].site
    plans = [LayerPlan(i, 2, 32, shape, site, sockets=()) for i in range(2)]
    with pytest.raises(ValueError, match=rf"{plug.name} takes the socket '\w+', which block 0 .* it offers \[\]"):
        PlugSet([plug()], 2).build(plans)


class ForgetsCarry(Plug):
    """A plug whose module returns the maps alone."""

    name = 'forgets'

    def __init__(self, socket: str, layers='all'):
        super().__init__(layers)
        self.socket = socket

    def build_layer(self, plan):
        return {self.socket: FirstArgument()}


class FirstArgument(nn.Module):
    def forward(self, first, *others):
        return first


@pytest.mark.parametrize(('socket', 'parts'), [('qkv', 4), ('scores', 2), ('map', 2)])
def test_a_module_that_returns_no_carry_is_refused(socket, parts):
    """A lone tensor would be taken apart along a batch of as many images."""
    model = vit(plugs=[ForgetsCarry(socket)])
    with pytest.raises(TypeError, match=rf'the socket {socket!r} returns a Tensor: must be a tuple of {parts}, with'):
        model(images(32, 32, batch=parts, dtype=torch.float32))
