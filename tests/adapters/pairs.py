"""Every tiny model with every plug: what holds for each model and each pair, or why it is refused."""

import io

import torch
from adapters.foreign import (
    HUGGING_FACE,
    PLUGS,
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
from vitplug.plugs.plug_set import is_plug

MODELS = {'timm': tuple(TIMM), 'transformers': tuple(HUGGING_FACE)}

#: Models whose library has no activation checkpointing.
UNCHECKPOINTED = ('pit_',)


def build(library: str, name: str) -> nn.Module:
    """A tiny model."""
    return timm_model(name) if library == 'timm' else hugging_face_model(name)


def run(library: str, name: str, model: nn.Module) -> Tensor:
    """Its output on its inputs."""
    return model(images()) if library == 'timm' else model(**inputs_of(name))[0]


def check_without_plugs(library: str, name: str) -> None:
    """Checks that ``plug_in(model, [])`` changes neither output nor gradients.

    Raises:
        AssertionError: If it does.
    """
    model = build(library, name)
    expected, grads = run(library, name, model), gradients(model, lambda: run(library, name, model))
    vitplug.plug_in(model, [])
    torch.testing.assert_close(run(library, name, model), expected, atol=1e-12, rtol=1e-12)
    assert_same(gradients(model, lambda: run(library, name, model)), grads, atol=1e-11)


def check_compiled(library: str, name: str) -> None:
    """Checks that a compiled model with plugs of every kind of socket that it has gives what it gives uncompiled.

    Raises:
        AssertionError: If it gives something else.
    """
    model = plugged(build(library, name), together(name)).float()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=library == 'timm', backend='aot_eager')
    inputs = {
        key: value.float() if value.is_floating_point() else value
        for key, value in (dict(x=images()) if library == 'timm' else inputs_of(name)).items()
    }
    with torch.no_grad():
        expected, found = (m(*inputs.values()) if library == 'timm' else m(**inputs)[0] for m in (model, compiled))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def reason_of_refusal(library: str, name: str, plug: str) -> str:
    """Checks one pair; gives why it is refused, ``''`` if it is not.

    Raises:
        AssertionError: If keys change, unplugging is not bit for bit, a saved model is another when it is loaded, or
            activation checkpointing has other gradients.
    """
    model = build(library, name)
    expected, keys = run(library, name, model), list(model.state_dict())
    try:
        plugged(model, [PLUGS[plug]])
    except ValueError as error:
        return str(error)
    found = run(library, name, model)
    assert [key for key in model.state_dict() if not is_plug(key)] == keys
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = vitplug.plug_in(build(library, name), [PLUGS[plug]])
    other.load_state_dict(torch.load(file))
    assert torch.equal(run(library, name, other), found)
    _without_dropout(model.train())
    if not name.startswith(UNCHECKPOINTED):
        grads = gradients(model, lambda: run(library, name, model))
        _checkpointed(library, model)
        assert_same(gradients(model, lambda: run(library, name, model)), grads, atol=1e-9)
    vitplug.unplug(model.eval())
    assert torch.equal(run(library, name, model), expected) and list(model.state_dict()) == keys
    return ''


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _checkpointed(library: str, model: nn.Module) -> None:
    if library == 'timm':
        model.set_grad_checkpointing(True)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
