"""What optimizers must know of plugs, whoever builds them: mmengine, the libraries' own scripts, vitplug's commands.

Every constructor of optimizers in the three libraries is mmengine's ``DefaultOptimWrapperConstructor`` or inherits its
call. That call is wrapped here once, when a host is imported; models without plugs are left alone.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import wraps

from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from torch import nn
from torch.optim import Optimizer

from vitplug.plugs.plug_set import PlugPart, is_plug


def spare_plugs() -> None:
    """Makes all constructors spare the scalars of plugs."""
    build = DefaultOptimWrapperConstructor.__call__

    @wraps(build)
    def build_and_spare(self: DefaultOptimWrapperConstructor, model: nn.Module) -> OptimWrapper:
        network = getattr(model, 'module', model)
        wrapper = build(self, model)
        _spare(wrapper.optimizer, spared(network, self.paramwise_cfg.get('custom_keys') or {}))
        return wrapper

    DefaultOptimWrapperConstructor.__call__ = build_and_spare


def spared(model: nn.Module, custom_keys: Mapping[str, Mapping] = {}) -> set[nn.Parameter]:
    """The parameters of plugs that take no weight decay: their scalars and vectors, and what they name.

    The weights and biases of layers in plugs are treated like those of all layers.

    Args:
        model: A model with hosts in it.
        custom_keys: Those of a ``paramwise_cfg``. One with a ``decay_mult`` counts that names more than a plug's block.
    """
    decided = [key for key, settings in custom_keys.items() if 'decay_mult' in settings]
    return {
        parameter
        for name, parameter in _of_plugs(model)
        if not any(key in name[max(name.index('plugs.') + 1 - len(key), 0) :] for key in decided)
    }


def _of_plugs(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    parts = [(prefix, part) for prefix, part in model.named_modules() if isinstance(part, PlugPart) and is_plug(prefix)]
    for prefix, part in parts:
        for inner, module in part.named_modules(prefix=prefix):
            is_layer = type(module).__module__.startswith('torch.nn.')
            for name, parameter in () if is_layer else module.named_parameters(inner, recurse=False):
                if parameter.ndim <= 1 or name.rpartition('.')[2] in part.plug.undecayed:
                    yield name, parameter


def _spare(optimizer: Optimizer, parameters: Collection[nn.Parameter]) -> None:
    """Takes weight decay from parameters, which get groups of their own where others share theirs."""
    for group in list(optimizer.param_groups) if parameters else ():
        moved = [parameter for parameter in group['params'] if parameter in parameters]
        if not moved or not group.get('weight_decay'):
            continue
        kept = [parameter for parameter in group['params'] if parameter not in parameters]
        if not kept:
            group['weight_decay'] = 0.0
            continue
        group['params'] = kept
        optimizer.add_param_group({**group, 'params': moved, 'weight_decay': 0.0})
