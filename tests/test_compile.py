"""The contract's clause on ``torch.compile``, the dearest one, on the hosts whose graphs differ."""

import copy

import pytest
import torch
from cases import HOSTS, PLUGS, images, randomize
from torch.testing import assert_close

SIZE = (32, 48)


@pytest.mark.parametrize('host', ['vit', 'vit-windows', 'swin'])
@pytest.mark.parametrize('plugs', PLUGS)
def test_compiles_to_one_graph_once(host, plugs):
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]))).double().eval()
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    x = images(*SIZE)
    assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)
    with torch._dynamo.config.patch(error_on_recompile=True):
        x = images(*SIZE, seed=2)
        assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)
