"""A fake GPU: torch's fake tensors on the device cuda."""

from contextlib import ExitStack, contextmanager
from importlib import import_module
from unittest.mock import Mock, patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

PRECISIONS = {'float32': None, 'float16': torch.float16, 'bfloat16': torch.bfloat16}


@contextmanager
def on_fake_gpu():
    """New tensors on a fake GPU, and autocast, which torch leaves off where it finds no driver."""
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(torch.device('cuda'))
        stack.enter_context(patch('torch.cuda.amp.common.amp_definitely_not_available', lambda: False))
        stack.enter_context(patch('torch.cuda.is_bf16_supported', lambda: True))
        yield


def without_roi_kernels():
    """Lets mmcv's RoIAlign run on fake tensors, which have no numbers that its kernel could read."""
    module = import_module('mmcv.ops.roi_align')  # mmcv.ops has a function of this name
    return patch.object(module, 'ext_module', Mock())
