"""Every tiny model: itself without plugs; with every plug, what holds for each pair, or which are refused."""

import copy
import importlib.util
import io

import pytest
import torch
from adapters.foreign import (
    HUGGING_FACE,
    PLUGS,
    TEXT,
    TIMM,
    assert_same,
    gradients,
    hugging_face_model,
    images,
    inputs_of,
    plugged,
    timm_model,
    together,
)
from torch import Tensor, nn

import vitplug
from vitplug.adapters.walk import PluggedBlocks
from vitplug.plugs.plug_set import is_plug

MODELS = [*TIMM, *(HUGGING_FACE if importlib.util.find_spec('transformers') else [])]
# Models whose windows, biases of all pairs or words leave no room for further tokens.
WITHOUT_PREFIX = ('swin', 'Swin', 'beit', 'Beit', 'vit_relpos', 'vit_srelpos', 'mvitv2', 'mixer', *TEXT)
# MViTv2 pools queries and keys, and its grids differ from block to block.
POOLED = ('ExclusiveSelfAttention', 'LocalitySelfAttention', 'NeuTRENO', 'RelPosBias', 'RelPosMlp', 'RotaryPosition')
POOLED += ('GatedAttention', 'ValueResidual')
TOKENS = ('ContextBroadcast', 'SqueezeExcite', 'ConditionalPosition')


def refused(name: str) -> set[str]:
    """The plugs that a model does not take."""
    if name.startswith('mixer'):
        return PLUGS.keys() - set(TOKENS)
    prefixes = {'Registers'} if name.startswith(WITHOUT_PREFIX) and not name.startswith('mvitv2') else set()
    cosines = {'QKNorm'} if name.startswith('swinv2') else set()
    return {'UniformHead', 'PatchRefinement', *prefixes, *cosines, *(POOLED if name.startswith('mvitv2') else ())}


def build(name: str) -> nn.Module:
    return timm_model(name) if name in TIMM else hugging_face_model(name)


def run(name: str, model: nn.Module) -> Tensor:
    """The model's output on its inputs."""
    return model(images()) if name in TIMM else model(**inputs_of(name))[0]


@pytest.mark.parametrize('name', MODELS)
def test_without_plugs_nothing_changes(name):
    model = build(name)
    expected, keys, kinds = run(name, model), list(model.state_dict()), {n: type(m) for n, m in model.named_modules()}
    grads = gradients(model, lambda: run(name, model))
    assert vitplug.plug_in(model, []) is model
    torch.testing.assert_close(run(name, model), expected, atol=1e-12, rtol=1e-12)
    assert_same(gradients(model, lambda: run(name, model)), grads, atol=1e-11)
    assert list(model.state_dict()) == keys
    lists = {key for key, module in model.named_modules() if isinstance(module, PluggedBlocks)}
    assert all(isinstance(m, kinds[n]) for n, m in model.named_modules() if n in kinds and n not in lists)
    assert 'plugs: none' in model.plug_summary


@pytest.mark.parametrize('name', MODELS)
def test_unplug_gives_the_model_back_bit_for_bit(name):
    model = build(name)
    expected, state, config = run(name, model), copy.deepcopy(model.state_dict()), str(getattr(model, 'config', ''))
    before = [(type(m), sorted(vars(m)), sorted(m._modules), len(m._forward_hooks)) for m in model.modules()]
    plugged(model, together(name))
    assert [key for key in model.state_dict() if not is_plug(key)] == list(state)
    assert not torch.allclose(run(name, model), expected)
    assert vitplug.unplug(model) is model
    assert [(type(m), sorted(vars(m)), sorted(m._modules), len(m._forward_hooks)) for m in model.modules()] == before
    assert torch.equal(run(name, model), expected)
    assert model.state_dict().keys() == state.keys() and str(getattr(model, 'config', '')) == config
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_plugs_are_taken_or_refused(name):
    """Keys stay, a saved model is itself, and unplugging is bit for bit."""
    found = set()
    for plug, settings in PLUGS.items():
        model = build(name)
        expected, keys = run(name, model), list(model.state_dict())
        try:
            plugged(model, [settings])
        except ValueError:
            found.add(plug)
            continue
        out = run(name, model)
        assert [key for key in model.state_dict() if not is_plug(key)] == keys
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = vitplug.plug_in(build(name), [settings])
        other.load_state_dict(torch.load(file))
        assert torch.equal(run(name, other), out)
        vitplug.unplug(model)
        assert torch.equal(run(name, model), expected) and list(model.state_dict()) == keys
    assert found == refused(name)


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_compiled(name):
    model = plugged(build(name), together(name)).float()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=name in TIMM, backend='aot_eager')
    inputs = {
        key: value.float() if value.is_floating_point() else value
        for key, value in (dict(x=images()) if name in TIMM else inputs_of(name)).items()
    }
    with torch.no_grad():
        expected, found = (m(*inputs.values()) if name in TIMM else m(**inputs)[0] for m in (model, compiled))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
