"""The position-bias ViTs on which GAB sits: timm's ``vit_relpos_*``, weight for weight."""

import re

import pytest
import timm
import torch
from cases import randomize

from vitplug.backbones import VisionTransformer

ARCHS = {
    'small': dict(embed_dims=384, num_layers=12, num_heads=6, feedforward_channels=1536),
    'medium': dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048),
    'base': dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
}
COUNTS = {'small': 21_983_920, 'medium': 38_747_208, 'base': 86_429_560}
RENAMES = [
    (r'^patch_embed\.proj', 'patch_embed.projection'),
    (r'^fc_norm', 'ln2'),
    (r'^blocks\.(\d+)\.norm1', r'layers.\1.ln1'),
    (r'^blocks\.(\d+)\.norm2', r'layers.\1.ln2'),
    (r'^blocks\.(\d+)\.ls1\.gamma', r'layers.\1.attn.gamma1.weight'),
    (r'^blocks\.(\d+)\.ls2\.gamma', r'layers.\1.ffn.gamma2.weight'),
    (r'^blocks\.(\d+)\.attn\.rel_pos\.mlp', r'layers.\1.plugs.rel_pos_mlp.bias'),
    (r'^blocks\.(\d+)\.mlp\.fc1', r'layers.\1.ffn.layers.0.0'),
    (r'^blocks\.(\d+)\.mlp\.fc2', r'layers.\1.ffn.layers.1'),
    (r'^blocks\.', 'layers.'),
]


def relpos_vit(size, *more_plugs):
    return VisionTransformer(
        ARCHS[size],
        with_cls_token=False,
        use_abs_pos_embed=False,
        qkv_bias=False,
        layer_scale_init_value=1e-6,
        out_type='avg_featmap',
        final_norm=False,
        plugs=[dict(type='RelPosMlp'), *more_plugs],
    )


def renamed(key):
    for pattern, name in RENAMES:
        key = re.sub(pattern, name, key)
    return key


@pytest.mark.parametrize('size', ARCHS)
def test_relpos_vit(size):
    theirs = randomize(timm.create_model(f'vit_relpos_{size}_patch16_224')).eval()
    ours = relpos_vit(size).eval()
    state_dict = {renamed(key): value for key, value in theirs.state_dict().items()}
    head = {key: state_dict.pop(f'head.{key}') for key in ('weight', 'bias')}
    index_buffers = [key for key in state_dict if key.endswith(('relative_position_index', 'rel_coords_log'))]
    ours.load_state_dict({key: value for key, value in state_dict.items() if key not in index_buffers})
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        expected = theirs(x)
        got = ours(x)[0] @ head['weight'].T + head['bias']
    assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize('size', ARCHS)
def test_parameter_counts(size):
    classifier = 1000 * ARCHS[size]['embed_dims'] + 1000
    for plugs, extra in (([], 0), ([dict(type='GaussianAttentionBias')], 24)):
        count = sum(p.numel() for p in relpos_vit(size, *plugs).parameters())
        assert count + classifier == COUNTS[size] + extra
