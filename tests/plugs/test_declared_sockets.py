"""What a plug may take: the sockets that a block or the network declares, and no others."""

import re

import pytest
import torch
from cases import images, mixer, randomize, vit
from probe_plug import Probe
from torch import nn
from torch.testing import assert_close

from vitplug.plugs import BLOCK_SOCKETS, NETWORK_SOCKETS, Plug

MLP_SOCKETS = ('mlp_front', 'mlp_mid', 'mlp_end')


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


def taking(*sockets, of='layer'):
    """A plug that takes some sockets of its blocks, or of the network."""

    class Taker(Plug):
        name = 'taker'

        def build_layer(self, plan):
            return {socket: nn.Identity() for socket in sockets} if of == 'layer' else {}

        def build_network(self, plans):
            return {socket: nn.Identity() for socket in sockets} if of == 'network' else {}

    return [dict(type=Taker)]


BLOCK_LIST, NETWORK_LIST = (re.escape(str(list(names))) for names in (BLOCK_SOCKETS, NETWORK_SOCKETS))


def test_sockets_that_do_not_exist():
    with pytest.raises(ValueError, match=f"taker takes the socket 'mpl_end', which block 0 .* {BLOCK_LIST}"):
        vit(plugs=taking('mpl_end'))
    for name in ('begin', 'mlp_end'):  # one of a block is none of the network
        message = f"taker takes the socket '{name}', which the network does not offer; it offers {NETWORK_LIST}"
        with pytest.raises(ValueError, match=message):
            vit(plugs=taking(name, of='network'))
    with pytest.raises(ValueError, match="taker takes the socket 'start', which block 0"):
        vit(plugs=taking('start'))


@pytest.mark.parametrize(('socket', 'parts'), [('qkv', 4), ('scores', 2), ('logits', 2), ('map', 2), ('block_in', 2)])
def test_a_module_that_returns_no_carry_is_refused(socket, parts):
    """A lone tensor would be taken apart along a batch of as many images."""
    model = vit(plugs=[Probe('a', **{socket: lambda weight, first, *others: first})])
    with pytest.raises(TypeError, match=rf'the socket {socket!r} returns a Tensor: must be a tuple of {parts}, with'):
        model(images(32, 32, batch=parts, dtype=torch.float32))
