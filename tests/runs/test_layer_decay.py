"""Layer-wise decay asks the backbone how deep a parameter lies, in models of any library."""

import pytest
from cases import SWIN_ARCH, VIT_ARCH, swin, vit
from mmengine.optim import build_optim_wrapper
from torch import nn

PLUGS = [dict(type='GaussianAttentionBias'), dict(type='ResidualAttention')]
OPTIM = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.5),
    constructor='vitplug.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(layer_decay_rate=0.5, flat_decay_mult=0.0),
)


class Detector(nn.Module):
    """A backbone and something after it, which knows of no depths."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.neck = nn.Conv2d(4, 4, 1)


@pytest.mark.parametrize(('host', 'blocks'), [(vit, VIT_ARCH['num_layers']), (swin, sum(SWIN_ARCH['depths']))])
def test_rates_fall_with_depth(host, blocks):
    model = Detector(host(plugs=PLUGS))
    groups = build_optim_wrapper(model, OPTIM).optimizer.param_groups
    rates = {group['param_name']: group['lr'] for group in groups}
    assert set(rates) == {name for name, _ in model.named_parameters()}
    deepest = blocks + 1
    assert rates['neck.weight'] == 1.0
    assert rates['backbone.patch_embed.projection.weight'] == 0.5**deepest
    assert rates['backbone.plugs.residual_attention.start.alpha.residual_alpha'] == 1.0
    gab = [rate for name, rate in rates.items() if 'gab_sigma' in name]
    assert gab == [0.5 ** (deepest - depth) for depth in range(1, blocks + 1)]
    assert all(group['weight_decay'] == 0 for group in groups if group['params'][0].ndim == 1)
