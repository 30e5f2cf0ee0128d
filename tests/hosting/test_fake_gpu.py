"""What would run on a GPU, under torch's fake tensors: every host with plugs, no tensor on another device, no wait.

A fake tensor has a shape, a type and a device, and no values: an operation on two devices raises, and so does one that
would wait for the GPU to read a value (`.item()`, a loop over values).
"""

import itertools
from contextlib import ExitStack, contextmanager, nullcontext
from unittest.mock import patch

import pytest
import torch
from cases import HOSTS, PLUGS, REFUSED
from torch._subclasses.fake_tensor import FakeTensorMode

from vitplug.attention.cache import cached
from vitplug.hosting import mark_padding

IMAGES = (2, 3, 64, 96)
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


def check(host: str, plugs) -> None:
    """Runs a host on a fake GPU in every precision, for inference, and for training on a padded, checkpointed batch.

    Raises:
        RuntimeError: If an operation gets tensors of two devices.
        DataDependentOutputException: If an operation reads a value.
    """
    with torch.device('meta'):  # first values may be read, forwards may not
        model = HOSTS[host](plugs=plugs)
    with on_fake_gpu():
        model = model.to_empty(device='cuda')
        for dtype, training in itertools.product(PRECISIONS, (True, False)):
            model.train(training)
            for block in model.plugged_blocks():
                block.with_cp = training
            images = torch.empty(IMAGES)
            images = mark_padding(images, [(64, 96), (32, 96)]) if training else images
            with torch.autocast('cuda', dtype=dtype) if dtype else nullcontext():
                outs = model(images)
            assert {out.device.type for out in outs} == {'cuda'}


@pytest.mark.integration
@pytest.mark.sampled(16)
@pytest.mark.parametrize('plugs', PLUGS)
@pytest.mark.parametrize('host', HOSTS)
def test_no_operation_mixes_devices_or_waits(host, plugs):
    if plugs in REFUSED.get(host, ()):
        pytest.skip('refused')
    check(host, PLUGS[plugs])


def test_built_tensors_are_kept_for_values_alone():
    calls = []

    @cached(4)
    def ones(number):
        calls.append(number)
        return torch.ones(number)

    with torch.inference_mode():
        first = ones(3)
    assert ones(3) is first and not first.is_inference() and calls == [3]
    for _ in range(2):
        with FakeTensorMode():
            ones(5)
    assert ones(5).sum().item() == 5 and calls == [3, 5, 5, 5]
