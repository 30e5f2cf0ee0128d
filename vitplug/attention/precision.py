"""Where a computation must keep its own precision, or have more."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Switches autocast off inside a ``with`` block; the meta device, which has no autocast, is left alone."""
    # The compiler of torch 2.5 cannot trace the look-up, and compiles only for devices with autocast.
    if device.type == 'meta' or not (torch.compiler.is_compiling() or torch.amp.is_autocast_available(device.type)):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def softmax(logits: Tensor) -> Tensor:
    """Probabilities in float32 at least, so that later steps do not start from values rounded to half precision."""
    return torch.softmax(logits, -1, dtype=at_least_float32(logits.dtype))


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, any other as it is."""
    return torch.promote_types(dtype, torch.float32)
