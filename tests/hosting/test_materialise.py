"""A model that was built on the meta device gets the values of one that was built where it is."""

import pytest
import torch
from cases import HOSTS, PLUGS, REFUSED, TOKEN_HOSTS, mixer, vit
from torch import nn

from vitplug.hosting import materialise
from vitplug.plugs import Plug

MORE = {
    'vit-scale': lambda **settings: vit(layer_scale_init_value=0.1, **settings),
    'vit-stem': lambda **settings: vit(stem='conv', **settings),
}


def both(build):
    """A model as its constructor makes it, and one that was made on the meta device first, from one seed."""
    torch.manual_seed(3)
    built = build()
    with torch.device('meta'):
        late = build()
    assert all(tensor.is_meta for tensor in late.state_dict().values())
    torch.manual_seed(3)
    return built, materialise(late)


def assert_same(built, late):
    own, other = built.state_dict(), late.state_dict()
    assert own.keys() == other.keys()
    assert [name for name in own if not torch.equal(own[name], other[name])] == []
    assert [p.requires_grad for p in built.parameters()] == [p.requires_grad for p in late.parameters()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize('host', [*HOSTS, *MORE])
@pytest.mark.parametrize('plugs', PLUGS)
def test_every_plug_on_every_host(host, plugs):
    if plugs in REFUSED.get(host, ()):
        pytest.skip('refused')
    built, late = both(lambda: {**HOSTS, **MORE}[host](plugs=PLUGS[plugs]))
    assert_same(built, late)
    for model in (built, late):
        torch.manual_seed(4)
        model.init_weights()
    assert_same(built, late)


def test_plugs_together_and_a_host_inside_a_model():
    plugs = 'cb(scaled=True)+gab+residual+refiner(init="default")+rel-pos-mlp+se'
    assert_same(*both(lambda: nn.Sequential(nn.Linear(3, 4), vit(plugs=plugs), nn.Linear(4, 2))))
    assert_same(*both(lambda: mixer(plugs=['se'])))
    assert TOKEN_HOSTS.keys() == {'mixer'}


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(1))

    def forward(self, tokens, site):
        return tokens * self.value


class Forgetful(Plug):
    name = 'forgetful'

    def build_layer(self, plan):
        return {'msa': Constant()}


def test_a_module_that_cannot_be_given_its_start_is_named():
    with torch.device('meta'):
        model = vit(plugs=[Forgetful()])
    with pytest.raises(ValueError, match=r'Constant has parameters or buffers and no reset_parameters\(\)'):
        materialise(model)
