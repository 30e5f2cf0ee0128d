"""From a model on the meta device, which has shapes and no values, to the model that its constructor makes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from vitplug.plugs import PlugModules

from .model import PluggedModel


@torch.no_grad()
def materialise(model: nn.Module, device: torch.device | str = 'cpu') -> nn.Module:
    """Gives a model that was built on the meta device memory, and the values that its constructor would have given.

    Modules get their values by ``reset_parameters``, torch's convention, in the order in which they were built, so that
    under the same seed they are those of a model that was built on the CPU. An ``init_cfg`` is for ``init_weights``
    afterwards, a checkpoint for ``load_state_dict``::

        with torch.device('meta'):
            model = VisionTransformer(plugs='gab')
        torch.manual_seed(0)
        materialise(model).init_weights()

    Args:
        model: A :class:`~vitplug.hosting.PluggedModel`, or a model that holds one.
        device: Where it is to be.

    Returns:
        The same model.

    Raises:
        ValueError: If a module has values of its own and no ``reset_parameters``.
    """
    check_resettable(model)
    model.to_empty(device=device)
    return reset_parameters(model)


def check_resettable(model: nn.Module) -> None:
    """Checks that all modules can give their tensors their first values.

    Raises:
        ValueError: If a module has values of its own and no ``reset_parameters``.
    """
    for module in _in_order(model):
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if tensors and not hasattr(module, 'reset_parameters'):
            raise ValueError(
                f'{type(module).__name__} has parameters or buffers and no reset_parameters(), which gives them their '
                'first values: add the method, or build the model on the device where it is to be'
            )


def allocate(model: nn.Module, device: torch.device | str) -> nn.Module:
    """Gives the tensors of a model that are on the meta device memory, without values; the others stay."""
    return model._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)


@torch.no_grad()
def reset_parameters(
    model: nn.Module, around: Callable[[nn.Module], AbstractContextManager] = nullcontext
) -> nn.Module:
    """Gives the tensors of a model the values of its constructor, in the order in which it was built.

    Args:
        model: The model.
        around: Called with a module, gives the context in which it resets its own tensors.

    Returns:
        The same model.
    """
    for module in _in_order(model):
        reset = getattr(module, 'reset_parameters', None)
        if reset is not None:
            with around(module):
                reset()
    return model


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    """A module and those in it, in the order in which constructors finish; plugs come last in their model."""
    for child in module.children():
        if not isinstance(child, PlugModules):
            yield from _in_order(child)
    yield module
    if isinstance(module, PluggedModel):
        yield from _of_plugs(module)


def _of_plugs(model: PluggedModel) -> Iterator[nn.Module]:
    """Modules of plugs, plug by plug: those of its blocks, then those of the network."""
    found = model.plug_modules()
    for name in model.plug_names:
        for modules in found:
            if name in modules:
                yield from _in_order(modules[name])
