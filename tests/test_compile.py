"""The contract's clause on ``torch.compile``, the dearest one, on the hosts whose graphs differ."""

import copy

import pytest
import torch
from cases import HOSTS, PLUGS, images, randomize
from torch.testing import assert_close

from vitplug.attention import WindowLayout
from vitplug.compat import CAN_COMPILE

SIZE = (32, 48)


@pytest.mark.parametrize('host', ['vit', 'vit-windows', 'swin'])
@pytest.mark.parametrize('plugs', PLUGS)
def test_compiles_to_one_graph_once(host, plugs):
    """On torch 2.1 only that it runs; `test_stacks.py` counts the graphs."""
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]))).double().eval()
    compiled = torch.compile(model, fullgraph=CAN_COMPILE, backend='eager')
    x = images(*SIZE)
    assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)
    with torch._dynamo.config.patch(error_on_recompile=True):
        x = images(*SIZE, seed=2)
        assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_shifted_windows_compile_with_inductor_for_inference():
    """Its code generator bounds every index by the range of what it is computed from."""
    layout = WindowLayout(6, 5, window=4, shift=2)
    compiled = torch.compile(lambda x: layout.from_windows(2 * layout.to_windows(x)))
    x = torch.randn(2, 30, 8)
    with torch.no_grad():
        assert torch.equal(compiled(x), 2 * x)
