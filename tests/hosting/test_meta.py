"""Modules give their tensors their first values themselves, so a model can be built on the meta device."""

import pytest
import torch
from cases import HOSTS, PLUGS, REFUSED


@pytest.mark.sampled(3)
@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('plugs', PLUGS)
def test_every_module_with_tensors_resets_them(host, plugs):
    if plugs in REFUSED.get(host, ()):
        pytest.skip('refused')
    with torch.device('meta'):
        model = HOSTS[host](plugs=PLUGS[plugs])
    model.to_empty(device='cpu')
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(torch.finfo(tensor.dtype).max if tensor.is_floating_point() else -100)
        for module in model.modules():
            getattr(module, 'reset_parameters', lambda: None)()
    kept = [name for name, tensor in model.state_dict().items() if (tensor.abs() > 1e6).any() or (tensor < -99).any()]
    assert kept == []
    model(torch.zeros(2, 3, 64, 64))
