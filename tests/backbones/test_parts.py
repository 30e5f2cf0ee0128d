"""Inference by parts of the tokens; that it changes nothing is a clause of the contract."""

import pytest
import torch
from cases import images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.attention import tuning
from vitplug.backbones.swin import SwinBlock
from vitplug.hosting import attention


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(tuning, 'PART', 6)


def test_dropout_draws_alike_with_and_without_gradients():
    """Else activation checkpointing, whose first forward has none, would not repeat itself."""
    model, x = randomize(vit(drop_rate=0.5)).double().train(), images(40, 56)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = tuple(out.detach() for out in model(x))
        torch.manual_seed(0)
        with torch.no_grad():
            assert_close(model(x), expected)


@pytest.mark.parametrize(
    ('plug', 'by_parts'), [('GaussianAttentionBias', True), ('ContextBroadcast', True), ('ResidualAttention', False)]
)
def test_windows_stay_together_only_where_a_plug_needs_them(plug, by_parts, monkeypatch):
    """And with gradients, which need everything kept anyway."""
    windows = []

    def counting(q, *args, **settings):
        windows.append(q.shape[1])
        return attend(q, *args, **settings)

    attend = attention.attend
    monkeypatch.setattr(attention, 'attend', counting)
    model, x = randomize(swin(plugs=[dict(type=plug)])).double().eval(), images(40, 56)
    blocks = sum(isinstance(module, SwinBlock) for module in model.modules())
    with torch.inference_mode():
        model(x)
    assert (len(windows) > blocks) is by_parts
    windows.clear()
    model(x)
    assert len(windows) == blocks
