"""A fake GPU: torch's fake tensors on the device cuda."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

# Types of autocast; None is float32.
PRECISIONS = (None, torch.float16, torch.bfloat16)


@contextmanager
def on_fake_gpu():
    """New tensors on a fake GPU, and autocast, which torch leaves off where it finds no driver."""
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(torch.device('cuda'))
        stack.enter_context(patch('torch.cuda.amp.common.amp_definitely_not_available', lambda: False))
        stack.enter_context(patch('torch.cuda.is_bf16_supported', lambda: True))
        yield
