"""Scores at the edges of half precision."""

import pytest
import torch

from vitplug.backbones import SwinTransformer, VisionTransformer

HOSTS = {
    'vit': lambda plugs: VisionTransformer(
        arch=dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=32),
        img_size=32, patch_size=8, out_type='featmap', plugs=plugs,
    ),
    'swin': lambda plugs: SwinTransformer(
        arch=dict(embed_dims=24, depths=[2, 2], num_heads=[3, 6]), img_size=32, window_size=4, out_indices=(1,),
        plugs=plugs,
    ),
}  # fmt: skip
PLUGS = {
    'none': [],
    'cb': [dict(type='ContextBroadcast')],
    'gab': [dict(type='RelPosBias'), dict(type='GaussianAttentionBias')],
    'residual': [dict(type='ResidualAttention')],
    'broad': [dict(type='BroadAttention')],
    'refiner': [dict(type='Refiner')],
}


def scale_queries_and_keys(model, factor):
    """Makes scores of about the factor squared, whatever the image."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if 'qkv.weight' in name:
                parameter[: 2 * parameter.shape[0] // 3] *= factor


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16], ids=['bf16', 'fp16'])
@pytest.mark.parametrize('plug', PLUGS)
@pytest.mark.parametrize('host', HOSTS)
def test_large_scores_stay_finite_in_half_precision(host, plug, dtype):
    """Scores of some thousands, far beyond a trained model's and within float16: one-hot maps, finite gradients."""
    torch.manual_seed(0)
    plugs = [entry for entry in PLUGS[plug] if not (host == 'swin' and entry['type'] == 'RelPosBias')]
    model = HOSTS[host](plugs)
    scale_queries_and_keys(model, 200.0)
    with torch.autocast('cpu', dtype):
        [output] = model(torch.rand(1, 3, 32, 32))
    assert output.isfinite().all()
    output.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
