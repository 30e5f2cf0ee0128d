"""What torch 2.1, the oldest that vitplug runs on, calls otherwise or lacks, under its present name. Needs torch only.

Names are looked for, no version is asked. What every supported torch has under its present name goes from this file.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

#: True in code that is being compiled or exported; `torch.compiler.is_compiling`. Dynamo knows this very function.
is_compiling: Callable[[], bool] = getattr(torch.compiler, 'is_compiling', torch._utils.is_compiling)

if hasattr(torch.amp, 'is_autocast_available'):
    is_autocast_available = torch.amp.is_autocast_available
    is_autocast_enabled = torch.is_autocast_enabled
else:
    _ENABLED = {'cpu': torch.is_autocast_cpu_enabled, 'cuda': torch.is_autocast_enabled}

    def is_autocast_available(device_type: str) -> bool:
        """Whether a kind of device, such as 'cuda', has autocast; 'meta' has none."""
        return device_type in _ENABLED

    def is_autocast_enabled(device_type: str) -> bool:
        """Whether autocast is on for a kind of device that has it."""
        return _ENABLED[device_type]()


def register_load_state_dict_pre_hook(module: nn.Module, hook: Callable) -> RemovableHandle:
    """Has ``hook(module, state_dict, prefix, ...)`` called before a module loads a state dict."""
    if hasattr(module, 'register_load_state_dict_pre_hook'):
        return module.register_load_state_dict_pre_hook(hook)
    return module._register_load_state_dict_pre_hook(hook, with_module=True)
