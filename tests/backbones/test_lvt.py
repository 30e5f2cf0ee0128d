"""The Lite Vision Transformer against its equations, and the authors' names, shapes and counts."""

import pytest
import torch
from attention_oracle import assert_same
from cases import LVT_ARCH, images, lvt, randomize
from lvt_oracle import Oracle
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.backbones import LVT

SIZES = [(32, 48), (37, 51), (5, 3)]


def oracle_of(model, kind=Oracle):
    return kind(dict(model.named_parameters()), *(LVT_ARCH[key] for key in ('depths', 'num_heads', 'sr_ratios')))


def build(**settings):
    return randomize(lvt(**settings)).double().eval()


def assert_same_with_gradients(got, expected, model):
    assert_same(got, expected, list(model.parameters()), rtol=1e-9, atol=1e-9)


def normed_maps(oracle, x):
    maps = oracle.stages(x)
    return tuple(
        oracle.norm(f'downstream_norms.{stage}', out).permute(0, 3, 1, 2)
        for stage, out in enumerate(maps)
        if f'downstream_norms.{stage}.weight' in oracle.state
    )


@pytest.mark.parametrize('size', SIZES, ids=str)
def test_maps(size):
    model, x = build(), images(*size)
    expected = normed_maps(oracle_of(model), x)
    for fused in (True, False):
        with fused_attention(fused):
            assert_same_with_gradients(model(x), expected, model)


def test_outputs_of_classifiers():
    """Those of all tokens are the authors' in `checkpoints/test_released.py`."""
    raw, cls_only = (build(out_type=out_type, out_indices=-1) for out_type in ('raw', 'cls_token'))
    x = images(37, 51)
    (tokens,) = raw(x)
    assert_close(cls_only(x), (tokens[:, 0],))
    with fused_attention(False):
        assert_close(raw(x), (tokens,))


# --- the authors' model ---


def test_weights_start_as_the_authors_do():
    torch.manual_seed(0)
    model = LVT(out_type='raw')
    stds = {name: p.std().item() for name, p in model.named_parameters() if p.ndim > 1}
    expected = {
        '1.1.0.attn.q.weight': 0.02,
        'post_network.0.mlp.fc1.weight': 0.02,
        'cls_token': 0.02,
        '0.0.proj.weight': (2 / (49 * 64)) ** 0.5,
        '3.0.proj.weight': (2 / (9 * 256)) ** 0.5,
        '1.1.0.attn.sr.weight': (2 / (16 * 64)) ** 0.5,
        '0.1.0.attn.weight.weight': (2 / (9 * 64)) ** 0.5,
        # Uniform, and the bound of uniform numbers is sqrt(3) of their standard deviation.
        '1.1.0.attn.ds.weight': (2 / 9) ** 0.5,
        '1.1.0.mlp.fc1.weight': (1 / (3 * 64)) ** 0.5,
    }
    for name, std in expected.items():
        assert stds[name] == pytest.approx(std, rel=0.1), name
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m.bias is not None]
    assert not any(m.bias.any() for m in linear)


# --- plugs ---


class Changed(Oracle):
    """Context Broadcasting at both ends, a Gaussian bias, residual attention.

    Every recursion blends with the scores of the block before; those of the last one are handed on.
    """

    before = handed = None

    def enter(self, block):
        self.before = self.handed if block == 2 else None  # with block 1 in one stage

    def logits(self, block, is_last, scores):
        if self.before is not None:
            scores = self.alpha * scores + (1 - self.alpha) * self.before
        if is_last:
            self.handed = scores
        return scores + self.gaussians[block]

    def tap(self, block, q, k, v):
        self.tapped[block] = (q, k, v)

    def msa(self, x):
        return (x + x.mean((1, 2), keepdim=True)) / 2

    mlp_end = msa


def gaussian(queries, keys, amplitude, sigma):
    """Of all pairs; positions in tokens of the queries, which lie closer."""
    sides = zip((*queries, *queries), (*queries, *keys), strict=True)
    centres = [[(i + 0.5) * unit / side for i in range(side)] for unit, side in sides]
    ys, xs, key_ys, key_xs = (torch.tensor(c, dtype=torch.float64) for c in centres)
    squares = (ys[:, None, None, None] - key_ys[:, None]) ** 2 + (xs[:, None, None] - key_xs) ** 2
    return (amplitude**2 * torch.exp(-squares / (2 * sigma**2))).flatten(2).flatten(0, 1)


@pytest.mark.parametrize('fused', [True, False])
def test_plugs_act_in_every_recursion_and_hand_on_from_the_last(fused):
    plugs = [
        dict(type='ContextBroadcast', position=['msa', 'mlp_end']),
        dict(type='GaussianAttentionBias', sigma=2.0, layers=[1, 2, 3]),
        dict(type='ResidualAttention', stage_transition='reset', layers=[1, 2, 3]),
    ]
    model, x = build(plugs=plugs), images(32, 48)
    parameters = dict(model.named_parameters())
    grids = {1: ((4, 6), (2, 3)), 2: ((4, 6), (2, 3)), 3: ((2, 3), (2, 3))}
    gaussians = {
        block: gaussian(*grids[block], *(parameters[f'{name}.plugs.gab.bias.gab_{p}'] for p in ('amplitude', 'sigma')))
        for block, name in {1: '1.1.0', 2: '1.1.1', 3: '2.1.0'}.items()
    }
    changed = oracle_of(model, Changed)
    changed.alpha = parameters['plugs.residual_attention.start.alpha.residual_alpha'].clamp(0, 1)
    changed.gaussians, changed.tapped = gaussians, {}
    expected = normed_maps(changed, x)
    with fused_attention(fused):
        assert_same_with_gradients(model(x), expected, model)
        _, found = model.forward_intermediates(x, ('q', 'k', 'v'))
    for block, tensors in changed.tapped.items():  # of the last recursion
        for name, t in zip('qkv', tensors, strict=True):
            assert_close(found[name][block].squeeze(1).transpose(1, 2).flatten(2), t.flatten(1, 2))


def test_uniform_heads_and_stock_weights():
    """Of the authors' projections, the rows of the heads that are left are loaded."""
    stock = randomize(lvt())
    model = lvt(plugs=[dict(type='UniformHead', layers=[1, 3])])
    missing, unexpected = model.load_state_dict(stock.state_dict(), strict=False)
    assert not missing and not unexpected
    own, theirs = model.plugged_blocks()[1].attn, stock.plugged_blocks()[1].attn
    heads, dims = 1, 6
    assert_close(own.q.weight, theirs.q.weight[: heads * dims])
    assert_close(own.ds.weight, theirs.ds.weight[: heads * dims])
    k, v = own.kv.weight.split([heads * dims, len(own.kv.weight) - heads * dims])
    assert_close((k, v[:12]), (theirs.kv.weight[: heads * dims], theirs.kv.weight[12:]))


def test_mixed_tokens():
    """MixToken swaps pieces of 4 x 4 tokens of the first stage here, one for each token of the third and last."""

    def swap(map_BhwD):
        return torch.cat((torch.cat((map_BhwD[:, :1, :1], map_BhwD.flip(0)[:, :1, 1:]), dim=2), map_BhwD[:, 1:]), dim=1)

    model, x = lvt(), images(32, 48, dtype=torch.float32)
    tokens, hw = model.embed(x)
    mixed, _ = model.embed(x, mix=swap)
    expected = tokens.unflatten(1, hw).clone()
    expected[:, 0:4, 4:12] = tokens.unflatten(1, hw).flip(0)[:, 0:4, 4:12]
    assert_close(mixed, expected.flatten(1, 2))
    with pytest.raises(ValueError, match=r'MixToken: the map of \(9, 12\) tokens .* multiple of 16 pixels'):
        model.embed(images(36, 48, dtype=torch.float32), mix=swap)
