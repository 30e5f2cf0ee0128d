"""Choosing layers, proving combinations, refusing what cannot work, saying what was built."""

import pytest
import torch
from cases import PLUGS, CarryProbe, images, randomize, vit

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import BlockShape, ContextBroadcast, LayerPlan, Plug, PlugSet


@pytest.mark.parametrize(
    ('layers', 'expected'), [('all', [0, 1, 2, 3, 4]), ('upper', [2, 3, 4]), ([3, 1], [1, 3]), ((0,), [0]), ([], [])]
)
def test_layers(layers, expected):
    assert ContextBroadcast(layers=layers).layer_indices(5) == expected


PLANS = [LayerPlan(i, 4, 8, BlockShape.stock(8, 2, 32), Site(GlobalLayout(3, 4), index=i)) for i in range(4)]


def summary(*plugs):
    plug_set = PlugSet(plugs, len(PLANS))
    return plug_set.summarize(plug_set.build(PLANS)[1])


def test_summary_says_which_where_and_whether_fused():
    assert summary(ContextBroadcast(position='msa', layers=[0, 1, 3]), CarryProbe(layers='upper')) == (
        "plugs: ContextBroadcast(position='msa') on blocks 0-1, 3 (changes pretrained outputs from the start); "
        'CarryProbe() on blocks 2-3 (changes pretrained outputs from the start); '
        'attention: fused but on blocks 2-3 (probe changes scores or maps)'
    )
    assert summary() == 'plugs: none; attention: fused'


def test_a_plug_that_builds_nothing_is_refused():
    class Forgotten(Plug):
        name = 'forgotten'

        def build_layer(self, plan):
            return None if self.layers == 'upper' else {}

    for layers, message in (
        ('upper', 'Forgotten has built None, .* `return` missing'),
        ('all', 'has no module in any'),
    ):
        with pytest.raises(ValueError, match=message):
            summary(Forgotten(layers))


def identities(value):
    """A carry's structure, with which object is where."""
    if isinstance(value, dict):
        return {key: identities(one) for key, one in value.items()}
    return [identities(one) for one in value] if isinstance(value, (tuple, list)) else id(value)


@pytest.mark.parametrize('plugs', PLUGS)
def test_the_carry_is_never_changed(plugs):
    """A block returns another one: activation checkpointing runs blocks again with the carry that they had."""
    model = randomize(vit(plugs=PLUGS[plugs]))
    x, hw = model.embed(images(32, 40, dtype=torch.float32))
    carry = model.plugs.start()
    for index, block in enumerate(model.layers):
        before = identities(carry)
        x, after = block(x, Site(model.layout(index, hw), index=index), carry)
        assert identities(carry) == before
        carry = after
