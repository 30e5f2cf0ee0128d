"""Where a computation must keep its own precision."""

from contextlib import AbstractContextManager, nullcontext

import torch


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Switches autocast off inside a ``with`` block; the meta device, which has none, is left alone."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
