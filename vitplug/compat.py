"""Functions that torch 2.1, the oldest supported torch, lacks or calls by another name. Needs only torch.

Remove a function when every supported torch has it.
"""

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

#: True while torch compiles or exports the code. Not wrapped: Dynamo recognises only torch's own function.
is_compiling: Callable[[], bool] = getattr(torch.compiler, 'is_compiling', None) or torch._utils.is_compiling

#: True while torch exports the code, where its version can tell.
is_exporting: Callable[[], bool] = getattr(torch.compiler, 'is_exporting', None) or (lambda: False)

if hasattr(torch.amp, 'is_autocast_available'):
    is_autocast_available = torch.amp.is_autocast_available
    is_autocast_enabled = torch.is_autocast_enabled
else:
    _ENABLED = {'cpu': torch.is_autocast_cpu_enabled, 'cuda': torch.is_autocast_enabled}

    def is_autocast_available(device_type: str) -> bool:
        """True if a device type has autocast: 'cpu' and 'cuda' have it, 'meta' does not."""
        return device_type in _ENABLED

    def is_autocast_enabled(device_type: str) -> bool:
        """True if autocast is on for a device type that has autocast."""
        return _ENABLED[device_type]()


def replace(value: Any, **changes: Any) -> Any:
    """A frozen dataclass with other values for some fields, all of which its constructor takes in order.

    The compiler of torch 2.5 knows neither `dataclasses.replace` nor how to make a dataclass that is not frozen.

    Raises:
        TypeError: if there is no field of the name.
    """
    kept = {name: getattr(value, name) for name in value.__match_args__ if name not in changes}
    return type(value)(**kept, **changes)


def register_load_state_dict_pre_hook(module: nn.Module, hook: Callable) -> RemovableHandle:
    """Registers ``hook(module, state_dict, prefix, ...)``, called before a module loads a state dict."""
    if hasattr(module, 'register_load_state_dict_pre_hook'):
        return module.register_load_state_dict_pre_hook(hook)
    return module._register_load_state_dict_pre_hook(hook, with_module=True)


#: True if torch can compile the backbones. torch 2.1 cannot; 2.2 to 2.4 are untested.
CAN_COMPILE: bool = torch.__version__ >= (2, 5)


def run_uncompiled_where_it_fails(forward: Callable) -> Callable:
    """Excludes a function from compilation if :data:`CAN_COMPILE` is False; the rest of the model is compiled."""
    return forward if CAN_COMPILE else torch.compiler.disable(forward)


def register_step_pre_hook(optimizer: torch.optim.Optimizer, hook: Callable) -> None:
    """Has ``hook(optimizer, args, kwargs)`` called before every step of an optimizer, the first of `args`.

    A process that has used the compiler of torch 2.1 calls torch's own hooks of optimizers no more, and DeepSpeed's
    optimizers have none.
    """
    if CAN_COMPILE and hasattr(optimizer, 'register_step_pre_hook'):
        optimizer.register_step_pre_hook(hook)
        return
    step = optimizer.step

    @wraps(step)
    def step_behind_hook(self, *args, **kwargs):
        hook(self, (self, *args), kwargs)
        return step(*args, **kwargs)

    # A method, as which mmengine's schedulers take it.
    optimizer.step = MethodType(step_behind_hook, optimizer)
