"""What would run on a GPU, under torch's fake tensors: every host with plugs, no tensor on another device, no wait.

A fake tensor has a shape, a type and a device, and no values: an operation on two devices raises, and so does one that
would wait for the GPU to read a value (`.item()`, a loop over values).
"""

from contextlib import nullcontext

import pytest
import torch
from cases import HOSTS, PLUGS, REFUSED
from fake_gpu import PRECISIONS, on_fake_gpu
from torch._subclasses.fake_tensor import FakeTensorMode

from vitplug.attention.cache import cached

IMAGES = (2, 3, 64, 96)


def check(host: str, plugs) -> None:
    """Runs a host on a fake GPU in every precision, for training and for inference.

    Raises:
        RuntimeError: If an operation gets tensors of two devices.
        DataDependentOutputException: If an operation reads a value.
    """
    with torch.device('meta'):  # first values may be read, forwards may not
        model = HOSTS[host](plugs=plugs)
    with on_fake_gpu():
        model, x = model.to_empty(device='cuda'), torch.empty(IMAGES)
        for dtype in PRECISIONS.values():
            for training in (True, False):
                model.train(training)
                with torch.autocast('cuda', dtype=dtype) if dtype else nullcontext():
                    outs = model(x)
                assert {out.device.type for out in outs} == {'cuda'}


@pytest.mark.integration
@pytest.mark.sampled(16)
@pytest.mark.parametrize('plugs', PLUGS)
@pytest.mark.parametrize('host', HOSTS)
def test_no_operation_mixes_devices_or_waits(host, plugs):
    if plugs in REFUSED.get(host, ()):
        pytest.skip('refused')
    check(host, PLUGS[plugs])


def test_a_tensor_of_another_device_and_a_read_value_are_noticed():
    with FakeTensorMode(), torch.device('cuda'):
        x = torch.empty(2)
        with pytest.raises(RuntimeError, match='cuda'):
            x + torch.empty(2, device='cpu')
        with pytest.raises(Exception, match='_local_scalar_dense'):
            x[0].item()


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
