"""What torch 2.4, the oldest supported torch, lacks, or its compiler does not know. Needs only torch.

Remove a function when every supported torch has it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

#: True while torch exports the code, where its version can tell.
is_exporting: Callable[[], bool] = getattr(torch.compiler, 'is_exporting', None) or (lambda: False)


def replace(value: Any, **changes: Any) -> Any:
    """A frozen dataclass with other values for some fields, all of which its constructor takes in order.

    The compiler of torch 2.5 knows neither `dataclasses.replace` nor how to make a dataclass that is not frozen.

    Raises:
        TypeError: if there is no field of the name.
    """
    kept = {name: getattr(value, name) for name in value.__match_args__ if name not in changes}
    return type(value)(**kept, **changes)


def register_load_state_dict_pre_hook(module: nn.Module, hook: Callable) -> RemovableHandle:
    """Registers ``hook(module, state_dict, prefix, ...)``, called before a module loads a state dict.

    By the name that it also has before torch 2.5.
    """
    return module._register_load_state_dict_pre_hook(hook, with_module=True)
