"""What a model keeps between forwards depends on shapes and modules alone, is bounded, and no copy or file has it."""

import copy
import pickle

import pytest
import torch
from cases import HOSTS, images, randomize, swin
from torch.testing import assert_close

from vitplug.hosting import mark_padding
from vitplug.hosting.plan import MOST_PLANS
from vitplug.lab import bench

PLUGS = 'gab+residual'


def test_plans_are_bounded_and_belong_to_no_copy():
    model, x = randomize(swin(plugs=PLUGS)).double().eval(), images(40, 56)
    expected, keys = model(x), set(model.state_dict())
    for side in range(32, 32 + 4 * (MOST_PLANS + 4), 4):
        model(images(side, 32))
    assert len(model.__dict__['_kept_plans']) == MOST_PLANS
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert '_kept_plans' not in copied.__dict__ and set(copied.state_dict()) == keys
        assert not any('_bound' in block.plugs.__dict__ for block in copied.plugged_blocks())
        assert_close(copied(x), expected)


@pytest.mark.parametrize('put', [setattr, lambda part, name, module: part._modules.update({name: module})])
def test_a_module_that_is_replaced_is_found_in_the_next_forward(put):
    """As PEFT and quantisers replace modules."""
    model, x = randomize(swin(plugs=PLUGS)).double().eval(), images(32, 32)
    before, part = model(x), model.plugged_blocks()[0].plugs['gab']
    other = copy.deepcopy(part['bias'])
    with torch.no_grad():
        other.gab_amplitude.fill_(9.0)
    put(part, 'bias', other)
    assert (model(x)[0] - before[0]).abs().max() > 1e-6


@pytest.mark.parametrize(
    ('make', 'owner', 'settings'),
    [
        (swin, lambda model: model.plugged_blocks()[1].attn, dict(shift_size=1)),
        (HOSTS['vit-windows'], lambda model: model, dict(window_size=2)),
    ],
)
def test_windows_that_change_on_an_instance_act_in_the_next_forward(make, owner, settings):
    model, x = randomize(make(plugs='gab')).double().eval(), images(40, 56)
    before = model(x)[0]
    for name, value in settings.items():
        setattr(owner(model), name, value)
    after = model(x)[0]
    assert (after - before).abs().max() > 1e-6
    assert_close(after, copy.deepcopy(model)(x)[0])  # which has no plan of before


def test_padding_that_no_plug_reads_costs_the_sizes_alone():
    model = randomize(swin()).double().eval()
    plain, padded = images(32, 40), mark_padding(images(32, 40), [(17, 40), (32, 40)])
    with torch.no_grad():
        counts = [bench.operations(lambda x=x: model(x)) for x in (plain, padded)]
    assert counts[1] - counts[0] <= 20  # a few for each stage, none for each block
