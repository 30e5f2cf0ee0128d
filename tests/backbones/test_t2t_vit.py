"""T2T-ViT against an implementation from its equations, and against mmpretrain's where that scales scores rightly."""

import math
from functools import partial

import mmpretrain.models as stock
import pytest
import torch
import torch.nn.functional as F
from attention_oracle import gradients
from cases import images, randomize, t2t
from torch.testing import assert_close

from vitplug.backbones import T2T_ViT
from vitplug.backbones.t2t_vit import sinusoids
from vitplug.backbones.tokens_to_token import PerformerAttention

SIZE = (32, 40)
STAGES = {
    'performer': dict(token_dims=8, use_performer=True, performer_drop_rate=0.0),
    'transformer': dict(token_dims=8),
}


def build(**settings):
    return randomize(t2t(**{'num_layers': 2, **settings})).double()


# --- from the equations, by explicit loops and maps ---


class Oracle:
    """T2T-ViT from the tensors of a state dict."""

    def __init__(self, tensors, heads, qk_scale=None):
        self.tensors, self.heads, self.qk_scale = tensors, heads, qk_scale

    def linear(self, name, x):
        return F.linear(x, self.tensors[f'{name}.weight'], self.tensors.get(f'{name}.bias'))

    def norm(self, name, x):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
        return (x - mean) / (var + 1e-5).sqrt() * self.tensors[f'{name}.weight'] + self.tensors[f'{name}.bias']

    def mlp(self, name, x):
        return self.linear(f'{name}.ffn.layers.1', F.gelu(self.linear(f'{name}.ffn.layers.0.0', x)))

    def token_maps(self, name, x):
        """Attention maps, and the values."""
        if f'{name}.attn.qkv.weight' in self.tensors:
            q, k, v = self.linear(f'{name}.attn.qkv', x).chunk(3, -1)
            return (q @ k.mT / math.sqrt(x.shape[-1])).softmax(-1), v
        w = self.tensors[f'{name}.attn.random_features']
        k, q, v = self.linear(f'{name}.attn.kqv', x).chunk(3, -1)
        phi = [
            torch.stack([(t @ row - t.pow(2).sum(-1) / 2).exp() / math.sqrt(len(w)) for row in w], -1) for t in (q, k)
        ]
        weights = phi[0] @ phi[1].mT
        return weights / (weights.sum(-1, keepdim=True) + 1e-8), v

    def token_layer(self, name, x):
        maps, v = self.token_maps(name, self.norm(f'{name}.ln1', x))
        x = v + self.linear(f'{name}.attn.proj', maps @ v)
        return x + self.mlp(name, self.norm(f'{name}.ln2', x))

    def tokens(self, x):
        x, hw = soft_split(x, 7, 4, 2)
        for number in (1, 2):
            x = self.token_layer(f'tokens_to_token.attention{number}', x)
            x, hw = soft_split(x.mT.unflatten(2, hw), 3, 2, 1)
        return self.linear('tokens_to_token.project', x), hw

    def block(self, index, x):
        name = f'encoder.{index}'
        q, k, v = self.linear(f'{name}.attn.qkv', self.norm(f'{name}.ln1', x)).chunk(3, -1)
        dims, outs = q.shape[-1] // self.heads, []
        for h in range(self.heads):
            own = slice(h * dims, (h + 1) * dims)
            logits = q[..., own] @ k[..., own].mT * (self.qk_scale or 1 / math.sqrt(dims))
            outs.append(logits.softmax(-1) @ v[..., own])
        x = x + self.linear(f'{name}.attn.proj', torch.cat(outs, -1))
        return x + self.mlp(name, self.norm(f'{name}.ln2', x))

    def __call__(self, x, depth):
        x, hw = self.tokens(x)
        x = torch.cat((self.tensors['cls_token'].expand(len(x), -1, -1), x), 1) + self.tensors['pos_embed']
        for index in range(depth):
            x = self.block(index, x)
        return self.norm('norm', x), hw


def soft_split(x, kernel, stride, pad):
    """Every window as one token, channel by channel."""
    x = F.pad(x, (pad, pad, pad, pad))
    tops, lefts = (range(0, side - kernel + 1, stride) for side in x.shape[2:])
    windows = [x[:, :, top : top + kernel, left : left + kernel].flatten(1) for top in tops for left in lefts]
    return torch.stack(windows, 1), (len(tops), len(lefts))


@pytest.mark.parametrize('stage', STAGES)
@pytest.mark.parametrize('qk_scale', [None, 24**-0.5])
def test_values_and_gradients(stage, qk_scale):
    model = build(t2t_cfg=STAGES[stage], qk_scale=qk_scale, out_type='raw').eval()
    tensors = {name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in model.named_parameters()}
    x = images(*SIZE)
    (got,), (expected, hw) = model(x), Oracle(tensors, heads=3, qk_scale=qk_scale)(x, depth=2)
    assert hw == model.patch_resolution == (2, 3)
    assert_close(got, expected, rtol=1e-9, atol=1e-9)
    learned = [name for name, p in model.named_parameters() if p.requires_grad]
    wanted = gradients([expected], [tensors[name] for name in learned])
    assert_close(gradients([got], [model.get_parameter(name) for name in learned]), wanted, rtol=1e-9, atol=1e-9)


def test_outputs():
    model, x = build(out_indices=[0, 1]).eval(), images(*SIZE)
    oracle = Oracle(dict(model.named_parameters()), heads=3)
    (first, last), (tokens, hw) = model(x), oracle(x, depth=2)
    assert first.shape == last.shape == (2, 24, 2, 3)
    assert_close(last, tokens[:, 1:].mT.unflatten(2, hw))
    for out_type, expected in {'cls_token': tokens[:, 0], 'avg_featmap': tokens[:, 1:].mean(1), 'raw': tokens}.items():
        other = build(out_type=out_type).eval()
        other.load_state_dict(model.state_dict())
        assert_close(other(x)[0], expected)


# --- mmpretrain ---


def stock_pair(**settings):
    """mmpretrain's model and ours with the same weights."""
    settings = dict(
        img_size=32, embed_dims=24, num_layers=2, t2t_cfg=dict(token_dims=8), layer_cfgs=dict(num_heads=3), **settings
    )
    theirs = randomize(stock.T2T_ViT(**settings))
    theirs.eval()
    ours = T2T_ViT(**settings)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    return theirs.double(), ours.double().eval()


def attentions(model):
    stage = model.tokens_to_token
    return [layer.attn for layer in (stage.attention1, stage.attention2, *model.encoder)]


@pytest.mark.parametrize('size', [(32, 32), (48, 64)], ids=str)
@pytest.mark.parametrize('out_type', T2T_ViT.OUT_TYPES)
def test_equals_mmpretrain_with_its_scores_put_right(out_type, size):
    theirs, ours = stock_pair(out_type=out_type, out_indices=[0, 1])
    for attention, own in zip(attentions(theirs), attentions(ours), strict=True):
        attention.scaled_dot_product_attention = partial(F.scaled_dot_product_attention, scale=own.scale)
    x = images(*size)
    assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)


# --- positions ---


def test_positions_are_fixed_and_resized_to_other_images():
    model = t2t().double().eval()
    assert not model.pos_embed.requires_grad and model.pos_embed.shape == (1, 1 + 2 * 3, 24)
    stored = sinusoids(7, 24).double()
    settings = dict(img_size=32, embed_dims=24, num_layers=1, layer_cfgs=dict(num_heads=3))
    assert_close(T2T_ViT(**settings).pos_embed, stock.T2T_ViT(**settings).pos_embed)
    assert_close(model.pos_embed[0], stored, rtol=0, atol=0)
    x = images(48, 32)
    tokens, hw = model.tokens_to_token(x)
    grid = F.interpolate(stored[1:].T.unflatten(1, (2, 3))[None].float(), size=hw, mode='bicubic')[0].flatten(1).T
    got, _ = model.embed(x)
    assert hw == (3, 2)
    assert_close(got[:, 1:], tokens + grid)
    assert_close(got[:, 0], (stored[0] + model.cls_token[0, 0]).expand(2, -1))


def test_where_tokens_lie_in_the_image():
    """A token of the middle stands for the middle of all the pixels it has seen."""
    model, (height, width) = t2t(), (96, 112)
    x = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')).double()[None] + 0.5
    for kernel, stride, pad in ((7, 4, 2), (3, 2, 1), (3, 2, 1)):
        x = F.avg_pool2d(x, kernel, stride, pad)
    grid = model.pixels((height, width))
    assert grid.hw == x.shape[2:] == (6, 7) and model.image_stride == grid.stride
    for axis in range(2):
        middle = grid.start[axis] + (2 + 0.5) * grid.stride[axis]
        assert x[0, axis, 2, 2].item() == pytest.approx(middle)


# --- random features, start, costs ---


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


def test_checkpointing_of_the_token_stage():
    x, calls = images(*SIZE), []
    plain, again = (build(with_cp=with_cp).train() for with_cp in (False, True))
    attention = again.tokens_to_token.attention1
    attention.register_forward_pre_hook(lambda *_: calls.append(1))
    grads = [gradients(model(x), [p for p in model.parameters() if p.requires_grad]) for model in (plain, again)]
    assert len(calls) == 2  # in backward once more
    assert_close(*grads)


# --- bad inputs ---
