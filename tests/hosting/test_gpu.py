"""Every plug on every host on a GPU against the CPU; one skipped module where torch finds none."""

import copy
from contextlib import nullcontext

import pytest
import torch
from cases import images
from test_contract import PAIRS, SIZE, build, gradients, images_for, loss_of
from torch.testing import assert_close

from vitplug.hosting import mark_padding

if not torch.cuda.is_available():
    pytest.skip('torch finds no GPU', allow_module_level=True)

pytestmark = [pytest.mark.integration, pytest.mark.parametrize(('host', 'plugs'), PAIRS, ids=map('-'.join, PAIRS))]
DEVICE = 'cuda'
# Of resized position embeddings; torch's kernels for both devices differ by 1.2e-7 there, measured on an H200.
TOLERANCE = 1e-6
HALF = {dtype: (dtype, 16 * torch.finfo(dtype).eps) for dtype in (torch.bfloat16, torch.float16)}
# Type of autocast, and largest mean error of outputs.
PRECISIONS = {torch.float32: (None, 1e-4), **HALF}


def run(model, x, half=None):
    """Outputs and gradients, on the CPU."""
    with torch.autocast(DEVICE, half) if half else nullcontext():
        outs = model(x)
    loss_of([out.double() for out in outs]).backward()
    return tuple(out.detach().cpu() for out in outs), {name: grad.cpu() for name, grad in gradients(model).items()}


def on_gpu(model, dtype=torch.float64):
    return copy.deepcopy(model).to(DEVICE, dtype)


@pytest.mark.parametrize('checkpointed', [False, True], ids=['', 'with_cp'])
def test_values_and_gradients_are_those_of_the_cpu(host, plugs, checkpointed):
    model = build(host, plugs)
    x = images_for(model, 40, 56)
    expected, model = run(model, x), on_gpu(model)
    for block in model.plugged_blocks():
        block.with_cp = checkpointed
    assert_close(run(model, x.to(DEVICE)), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_inference_of_a_padded_batch(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    with torch.inference_mode():
        expected = model(mark_padding(x.clone(), [(9, 48), SIZE]))
        outs = on_gpu(model)(mark_padding(x.to(DEVICE), [(9, 48), SIZE]))
    assert_close([out.cpu() for out in outs], list(expected), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize('dtype', PRECISIONS, ids=str)
def test_other_precisions_differ_by_their_rounding(host, plugs, dtype):
    model = build(host, plugs)
    x = images_for(model, 40, 56)
    outs, grads = run(model, x)
    half, largest = PRECISIONS[dtype]
    rounded, rounded_grads = run(on_gpu(model, torch.float32), x.to(DEVICE, torch.float32), half)
    for got, expected in zip(rounded, outs, strict=True):
        assert (got - expected).abs().mean() / expected.abs().mean() < largest
    assert all(grad.isfinite().all() for grad in rounded_grads.values())
    assert rounded_grads.keys() == grads.keys()
