"""T2T-ViT against mmpretrain's where that scales scores rightly; its positions, features and places."""

from functools import partial

import mmpretrain.models as stock
import pytest
import torch
import torch.nn.functional as F
from attention_oracle import assert_same
from cases import images, randomize, t2t
from torch.testing import assert_close

from vitplug.backbones import T2T_ViT
from vitplug.backbones.t2t_vit import sinusoids
from vitplug.backbones.tokens_to_token import PerformerAttention

SIZE = (32, 40)


@pytest.mark.parametrize('out_type', T2T_ViT.OUT_TYPES)
def test_equals_mmpretrain_with_its_scores_put_right(out_type):
    """mmpretrain multiplies scores by the root of the heads' width. It has no Performer."""
    settings = dict(img_size=32, embed_dims=24, num_layers=2, layer_cfgs=dict(num_heads=3), out_indices=[0, 1])
    settings |= dict(out_type=out_type, t2t_cfg=dict(token_dims=8))
    theirs, ours = randomize(stock.T2T_ViT(**settings)).double(), T2T_ViT(**settings).double().eval()
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    for name, module in theirs.named_modules():
        if hasattr(module, 'scaled_dot_product_attention'):
            scale = ours.get_submodule(name).scale
            module.scaled_dot_product_attention = partial(F.scaled_dot_product_attention, scale=scale)
    for size in ((32, 32), (48, 64)):
        assert_close(ours(images(*size)), theirs(images(*size)), rtol=1e-9, atol=1e-9)


# --- positions ---


def test_positions_are_fixed():
    model = t2t().double().eval()
    assert not model.pos_embed.requires_grad and model.pos_embed.shape == (1, 1 + 2 * 3, 24)
    settings = dict(img_size=32, embed_dims=24, num_layers=1, layer_cfgs=dict(num_heads=3))
    assert_close(T2T_ViT(**settings).pos_embed, stock.T2T_ViT(**settings).pos_embed)
    assert_close(model.pos_embed[0], sinusoids(7, 24).double(), rtol=0, atol=0)


# --- random features, start, costs ---


def test_performer_is_its_equation():
    """Attention by random features of queries and keys, from the maps; no residual but that of the values."""
    attention = randomize(PerformerAttention(10, 6, drop_rate=0.0)).double()
    x = torch.randn(2, 7, 10, dtype=torch.float64, requires_grad=True)
    k, q, v = attention.kqv(x).chunk(3, -1)
    rows = attention.random_features
    phi = [(t @ rows.T - t.square().sum(-1, keepdim=True) / 2).exp() / len(rows) ** 0.5 for t in (q, k)]
    maps = phi[0] @ phi[1].mT
    expected = v + attention.proj(maps / (maps.sum(-1, keepdim=True) + 1e-8) @ v)
    assert_same([attention(x)], [expected], [x, *attention.kqv.parameters(), *attention.proj.parameters()])


def test_random_features_are_orthogonal_fixed_and_stored():
    attention = PerformerAttention(10, 6, drop_rate=0.0)
    features = attention.random_features
    assert_close(features @ features.T, 3 * torch.eye(3))
    assert not features.requires_grad and 'random_features' in attention.state_dict()
    model = t2t()
    before = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert {name.rpartition('.')[2] for name in before} == {'pos_embed', 'random_features'} and len(before) == 3
    model.init_weights()
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())


def test_features_beyond_half_precision():
    """Where all keys and queries are one random direction, its feature exceeds float16, and attention is uniform."""
    torch.manual_seed(0)
    attention, x = PerformerAttention(16, 64, drop_rate=0.0), torch.randn(2, 50, 16)
    with torch.no_grad():
        attention.kqv.weight[:128] = 0
        attention.kqv.bias[:128] = attention.random_features[0].repeat(2)
    v = attention.kqv(x)[..., 128:]
    expected = v + attention.proj(v.mean(1, keepdim=True))
    with torch.autocast('cpu', torch.float16):
        got = attention(x)
    assert_close(got.float(), expected, rtol=1e-2, atol=1e-2)
