"""An MLP by blocks of tokens gives what it gives as a whole."""

import pytest
import torch
from cases import images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.backbones import ffn

MODELS = {
    'vit': vit,
    'swin': swin,
    'swiglu': lambda: vit(layer_cfgs=dict(ffn_type='swiglu_fused')),
    'means between the halves': lambda: vit(plugs=[dict(type='ContextBroadcast', position='mlp_mid')]),
    'means around them': lambda: swin(plugs=[dict(type='ContextBroadcast', position=['mlp_front', 'mlp_end'])]),
}


@pytest.mark.parametrize('name', MODELS)
def test_inference_equals_training(name, monkeypatch):
    model, x = randomize(MODELS[name]()).double().eval(), images(40, 56)
    expected = tuple(out.detach() for out in model(x))
    monkeypatch.setattr(ffn, 'BLOCK', 200)
    with torch.inference_mode():
        assert_close(model(x), expected)


def test_dropout_draws_alike_with_and_without_gradients(monkeypatch):
    """Else activation checkpointing, whose first forward has none, would not repeat itself."""
    monkeypatch.setattr(ffn, 'BLOCK', 200)
    model, x = randomize(vit(drop_rate=0.5)).double().train(), images(40, 56)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = tuple(out.detach() for out in model(x))
        torch.manual_seed(0)
        with torch.no_grad():
            assert_close(model(x), expected)
