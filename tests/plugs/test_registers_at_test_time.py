"""Registers without training: neurons found and moved as the paper's equations say, token by token, in float64."""

import pytest
import torch
from attention_oracle import gradients
from cases import images, randomize, vit, vit_without_class_token
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.hosting import mark_padding
from vitplug.plugs import Registers

NEURONS = [(0, 3), (2, 7), (2, 30)]
HOSTS = {'cls': vit, 'no-cls': vit_without_class_token}


def moved_by_hand(own, number):
    """A hook on the hidden layer of a block: channel by channel and image by image."""

    def hook(block, channels):
        def move(module, inputs, hidden):
            hidden = hidden.clone()
            for image in range(len(hidden)):
                for channel in channels:
                    most = max(hidden[image, :, channel].unbind())
                    hidden[image, own : own + number, channel] = most
                    hidden[image, own + number :, channel] = 0
            return hidden

        return block.ffn.layers[0].register_forward_hook(move)

    return hook


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('number', [1, 2])
def test_activations_move_to_tokens_of_zeros(host, number):
    model = randomize(HOSTS[host](plugs=[dict(type=Registers, num_registers=number, neurons=NEURONS)])).double()
    plain = HOSTS[host]().double()
    plain.load_state_dict(model.state_dict())  # nothing is learned: the keys are the host's
    own, x = model.num_extra_tokens, images(24, 16).requires_grad_()
    hook = moved_by_hand(own, number)
    hooks = [hook(plain.layers[block], [c for b, c in NEURONS if b == block]) for block in (0, 2)]
    tokens, hw = plain.embed(x)
    tokens = torch.cat((tokens[:, :own], tokens.new_zeros(2, number, tokens.shape[2]), tokens[:, own:]), 1)
    for index, block in enumerate(plain.layers):
        tokens, _ = block(tokens, Site(GlobalLayout(*hw, own + number), index=index), {})
    tokens = torch.cat((tokens[:, :own], tokens[:, own + number :]), 1)
    expected = plain.format_output(len(plain.layers) - 1, tokens, hw)
    (got,) = model(x)
    assert_close(got, expected)
    leaves = [[x, *(model.get_parameter(name) for name, _ in plain.named_parameters())], [x, *plain.parameters()]]
    assert_close(gradients([got], leaves[0]), gradients([expected], leaves[1]))
    for hook in hooks:
        hook.remove()


def test_padding_holds_no_activation():
    """The largest activation of an image is that of its own tokens."""
    model = randomize(vit(plugs=[dict(type=Registers, num_registers=1, neurons=[(0, 3)])])).double()
    module = model.layers[0].plugs['registers']['mlp_mid']
    hidden = torch.randn(2, 1 + 1 + 20, 40, dtype=torch.float64)
    hidden[0, -1, 3] = 100
    _, found = model.forward_intermediates(mark_padding(images(32, 40), [(16, 40), (32, 40)]), ('site',), layers=[0])
    got = module(hidden, found['site'][0])
    assert got[0, 1, 3] == hidden[0, :12, 3].max() and got[1, 1, 3] == hidden[1, :, 3].max()
    untouched = torch.arange(40) != 3
    assert_close(got[..., untouched], hidden[..., untouched], rtol=0, atol=0)
