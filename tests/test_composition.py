"""Plugs together: every pair and all at once, against the canonical order written out."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from attention_oracle import assert_same
from cases import images, randomize, swin, vit
from torch.testing import assert_close

SIZE = (40, 56)
HOSTS = {'vit': vit, 'swin': swin}
ALL = {
    'ContextBroadcast': dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3),
    'SqueezeExcite': dict(type='SqueezeExcite', reduction=4),
    'UniformHead': dict(type='UniformHead'),
    'RelPosBias': dict(type='RelPosBias'),
    'RelPosMlp': dict(type='RelPosMlp', hidden_dims=8, drop_rate=0.0),
    'GaussianAttentionBias': dict(type='GaussianAttentionBias', sigma=2.0),
    'ResidualAttention': dict(type='ResidualAttention', alpha=0.7),
    'BroadAttention': dict(type='BroadAttention'),
    'Refiner': dict(type='Refiner', expansion=2),
}
# Broad attention needs a value for every query, which a uniform head has not.
APART = [{'BroadAttention', 'UniformHead'}]
PAIRS = [pair for pair in itertools.combinations(ALL, 2) if set(pair) not in APART]
TOGETHER = [name for name in ALL if name != 'UniformHead']
SETS = [*PAIRS, TOGETHER, [name for name in ALL if name != 'BroadAttention']]


def build(host, names):
    return randomize(HOSTS[host](plugs=[dict(ALL[name]) for name in names])).double().eval()


def part(plugs, name, socket):
    """A plug's module in a socket, None where the plug is not there."""
    return plugs[name][socket] if name in plugs else None


# --- the canonical order, from the papers' equations, for the ViT with a class token ---


def mlp_oracle(block, x):
    scale = part(block.plugs, 'cb', 'mlp_end')
    squeeze = part(block.plugs, 'se', 'mlp_end')
    fc1, fc2 = block.ffn.layers[0][0], block.ffn.layers[1]
    out = fc2(F.gelu(fc1(x)))
    if scale is not None:
        out = out + scale.cb_scale * out.mean(1, keepdim=True)
    if squeeze is not None:
        first, second = [layer for layer in squeeze.modules() if isinstance(layer, torch.nn.Linear)]
        out = out * torch.sigmoid(second(F.relu(first(out.mean(1, keepdim=True)))))
    return out


def pair_bias(block, hw, heads):
    """The biases of all patch pairs, one by one, with a row and column of zeros for the class token."""
    n = hw[0] * hw[1]
    bias = torch.zeros(heads, n + 1, n + 1, dtype=torch.float64)
    gauss, table, mlp = (part(block.plugs, name, 'bias') for name in ('gab', 'rel_pos_bias', 'rel_pos_mlp'))
    if table is not None:
        offsets = F.interpolate(
            table.rel_pos_table[None], size=(2 * hw[0] - 1, 2 * hw[1] - 1), mode='bicubic', align_corners=False
        )[0]
    for i, j in itertools.product(range(n), range(n)):
        dy, dx = i // hw[1] - j // hw[1], i % hw[1] - j % hw[1]
        if gauss is not None:
            spread = -(dy**2 + dx**2) / (2 * gauss.gab_sigma**2)
            bias[:, i + 1, j + 1] += gauss.gab_amplitude**2 * spread.exp()
        if table is not None:
            bias[:, i + 1, j + 1] += offsets[:, dy + hw[0] - 1, dx + hw[1] - 1]
        if mlp is not None:
            d = torch.tensor([dy, dx], dtype=torch.float64)
            bias[:, i + 1, j + 1] += mlp.fc2(F.relu(mlp.fc1(d.sign() * (1 + d.abs()).log())))
    return bias


def attention_oracle(block, x, hw, alpha, before):
    """The branch, the scores handed on, and q, k and v."""
    shape = block.attn.shape
    q, k, v = block.attn.split_heads(block.attn.qkv(x))
    scores = q @ k.mT / shape.head_dims**0.5
    if before is not None and alpha is not None:
        scores = alpha * scores + (1 - alpha) * before
    maps = (scores + pair_bias(block, hw, shape.map_heads)).softmax(-1)
    refine = part(block.plugs, 'refiner', 'map')
    if refine is not None:
        wide = F.conv2d(maps, refine.expand)
        maps = F.conv2d(F.conv2d(wide, refine.local, padding=1, groups=wide.shape[1]), refine.reduce)
    outs = [maps @ v[:, : shape.map_heads]]
    outs += [t.mean(-2, keepdim=True).expand_as(t) for t in v[:, shape.map_heads :].split(1, dim=1)]
    return block.attn.proj(torch.cat(outs, 1).transpose(1, 2).flatten(2)), scores, (q, k, v)


def vit_oracle(model, image):
    x, hw = model.embed(image)
    alphas = [p for name, p in model.named_parameters() if name.endswith('residual_alpha')]
    scores, taps = None, []
    for block in model.layers:
        branch, scores, qkv = attention_oracle(block, block.ln1(x), hw, alphas[0] if alphas else None, scores)
        taps.append(qkv)
        x = x + branch
        x = x + mlp_oracle(block, block.ln2(x))
    if 'broad' in model.plugs:
        q, k, v = (torch.cat(parts, dim=-1) for parts in zip(*taps, strict=True))
        broad = (q @ k.mT / model.embed_dims**0.5).softmax(-1) @ v
        flat = broad.transpose(1, 2).flatten(2)
        x = x + F.adaptive_avg_pool1d(flat, model.embed_dims)
    return model.ln1(x)[:, 1:].transpose(1, 2).unflatten(2, hw)


@pytest.mark.sampled(2)
@pytest.mark.parametrize('names', SETS, ids='-'.join)
def test_vit_follows_the_canonical_order(names):
    model, image = build('vit', names), images(24, 40)
    (got,) = model(image)
    expected = vit_oracle(model, image)
    assert_same([got], [expected], list(model.parameters()), rtol=1e-6, atol=1e-8)


@pytest.mark.sampled(4)
@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('names', [*PAIRS, TOGETHER], ids='-'.join)
def test_the_order_in_the_list_does_not_matter(host, names):
    model, turned = build(host, names), build(host, names[::-1])
    assert list(model.state_dict()) == list(turned.state_dict())
    assert_close(turned(images(*SIZE)), model(images(*SIZE)), rtol=0, atol=0)
