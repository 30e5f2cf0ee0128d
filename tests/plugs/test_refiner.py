"""Refiner in its hosts: starts, batch norms, shared maps and the official scheme against their equations.

That refined attention is its equation, in every form, is in `attention/test_queries_and_keys.py`.
"""

import copy
import inspect

import pytest
import test_contract as contract
import torch
import torch.nn.functional as F
from attention_oracle import assert_same
from cases import PLUGS, VIT_ARCH, images, randomize, vit
from refiner_oracle import bottleneck, refined, weighed
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import Refiner
from vitplug.plugs.refiner.linear import LinearRefine
from vitplug.plugs.refiner.official import BottleneckRefine

MBCONV = dict(mode='mbconv', init='default')
OFFICIAL = dict(type='Refiner', scheme='official', share=1, **MBCONV)


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probabilities(*shape):
    return noise(*shape).softmax(-1).requires_grad_()


def norms(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]


# --- bottleneck ---


def test_bottleneck_collects_the_statistics_of_images_windows_and_token_pairs():
    module = randomize(BottleneckRefine(2, 5, Refiner(expansion=2, **MBCONV))).double().train()
    probs = probabilities(2, 3, 2, 5, 5)
    expanded = torch.einsum('ng,bwgij->bwnij', module.expand[:, :, 0, 0], probs)
    module(probs, Site(GlobalLayout(1, 5)), {})
    assert_close(module.expand_bn.running_mean, 0.1 * expanded.mean((0, 1, 3, 4)))
    assert_close(module.expand_bn.running_var, 0.9 + 0.1 * expanded.var((0, 1, 3, 4)))


@pytest.mark.parametrize(
    ('rescale', 'training', 'factor'),
    [(None, True, 1), (None, False, 4), (True, True, 2), (True, False, 2), (False, True, 1), (False, False, 1)],
)
def test_rescale_by_tokens(rescale, training, factor):
    """None compares with the last training's 4 tokens, True with the configured 8."""
    module = randomize(BottleneckRefine(2, 8, Refiner(rescale_by_tokens=rescale, **MBCONV))).double().train()
    module(probabilities(2, 1, 2, 4, 4), Site(GlobalLayout(1, 4)), {})
    module.train(training)
    unscaled = copy.deepcopy(module)
    unscaled.rescale = False
    probs, site = probabilities(2, 1, 2, 16, 16), Site(GlobalLayout(4, 4))
    got, _ = module(probs, site, {})
    assert_close(got, unscaled(factor * probs, site, {})[0])
    assert torch.equal(got, unscaled(probs, site, {})[0]) == (factor == 1)


# --- starts ---


@pytest.mark.parametrize('reduction', [True, False])
def test_noise_sets_copies_apart_and_cancels_out(reduction):
    """Equal copies would get equal gradients for ever."""
    heads, expansion = 12, 3
    module = LinearRefine(heads, Refiner(expansion=expansion, reduction=reduction))
    extra = module.expand[:, :, 0, 0].unflatten(0, (heads, expansion)) - torch.eye(heads)[:, None]
    assert_close(extra.sum(1), torch.zeros(heads, heads), atol=1e-6, rtol=0)
    # One of r numbers with zero mean has (r - 1) / r of the variance.
    assert extra.std().item() == pytest.approx(0.02 * (2 / 3) ** 0.5, rel=0.15)


def test_identity_is_folded_precisely_under_autocast():
    """In half precision the noise would not cancel out: each head would get some of the others."""
    module = LinearRefine(3, Refiner(kernel_size=1))
    with torch.autocast('cpu', torch.bfloat16):
        assert_close(module.joined(module.dla()).flatten(1), torch.eye(3), atol=1e-6, rtol=0)


# --- sharing ---

SHARINGS = {
    'refiner-share-3': [dict(type='Refiner', share=3, constraint='spatial')],
    'refiner-share-heads': [dict(type='Refiner', share=2, layers=[1, 2, 3], reduction=False, expansion=2)],
    'unrefined-share': [dict(type='Refiner', mode='none', share=2, layers=[1, 2, 3])],
    'refiner-official': [OFFICIAL],
    'refiner-share-uniform': [dict(type='UniformHead'), dict(type='Refiner', share=1), dict(type='ContextBroadcast')],
}
CLAUSES = {name: clause for name, clause in vars(contract).items() if name.startswith('test_')}
CLAUSES = {name: f for name, f in CLAUSES.items() if list(inspect.signature(f).parameters) == ['host', 'plugs']}
del CLAUSES['test_intermediates']  # of every block
CLAUSES['twins'] = lambda host, plugs: contract.test_fused_and_plain_are_twins(host, plugs, (37, 51))
CLAUSES['autocast'] = lambda host, plugs: contract.test_autocast_to_rounding(host, plugs, torch.bfloat16)


@pytest.mark.sampled(4)
@pytest.mark.parametrize('clause', CLAUSES)
@pytest.mark.parametrize('plugs', SHARINGS)
def test_sharing_keeps_the_contract(plugs, clause, monkeypatch):
    for table in (PLUGS, contract.PLUGS):  # the contract has plugs of single hosts, too
        monkeypatch.setitem(table, plugs, SHARINGS[plugs])
    CLAUSES[clause]('vit', plugs)


def heads_of(t):
    return t.unflatten(-1, (VIT_ARCH['num_heads'], -1)).transpose(1, 2)[:, None]


def mlp_of(block, x):
    (fc1, act, _), fc2, _ = block.ffn.layers
    return fc2(act(fc1(x)))


def block_by_hand(block, x, grid, maps, is_refined):
    """A pre-norm ViT block that computes a map, refined if ``is_refined``, or takes the given one."""
    *qk, v = map(heads_of, block.attn.qkv(block.ln1(x)).split(x.shape[-1], dim=-1))
    if maps is None:
        q, k = qk
        maps = ((q @ k.mT) * q.shape[-1] ** -0.5).softmax(-1)
        maps = refined(maps, block.plugs['refiner']['map'], grid) if is_refined else maps
    out = weighed(maps, v)[:, 0].transpose(1, 2).flatten(2)
    x = x + block.attn.proj(out)
    return x + mlp_of(block, block.ln2(x)), maps


SHARED = {
    'refined': dict(expansion=2, kernel_size=5),
    'further heads': dict(expansion=2, reduction=False),
    'plain': dict(mode='none'),
}


@pytest.mark.parametrize('case', SHARED)
@pytest.mark.parametrize(('share', 'owners'), [(0, [0, 1, 2, 3]), (1, [0, 2]), (2, [0, 3])])
def test_blocks_share_a_map(share, owners, case):
    settings = SHARED[case]
    if case == 'plain' and not share:
        pytest.skip('changes nothing')
    model = randomize(vit(plugs=[dict(type='Refiner', share=share, **settings)])).double()
    site, x = Site(GlobalLayout(2, 3, 1)), noise(2, 7, VIT_ARCH['embed_dims']).requires_grad_()
    got, carry, expected, maps = x, {}, x, None
    for i, block in enumerate(model.layers):
        got, carry = block(got, site, carry)
        own = None if i in owners else maps
        expected, maps = block_by_hand(block, expected, site.layout.grid, own, case != 'plain')
    assert_same([got], [expected], [x, *model.layers.parameters()])


def official_oracle(blocks, x, training):
    """The official code's blocks: norms of halved tokens, branches divided by a half, maps refined where reused."""
    dims, handed = x.shape[-1], None
    scale = (dims // VIT_ARCH['num_heads']) ** -0.5

    def norm(layer, t):
        return F.layer_norm(t / 2, (dims,), layer.weight, layer.bias, eps=1e-6)

    for i, block in enumerate(blocks):
        *qk, v = map(heads_of, block.attn.qkv(norm(block.ln1, x)).split(dims, dim=-1))
        assert len(qk) == (0 if i % 2 else 2)
        if i % 2 == 0:
            own = ((scale**0.5 * qk[0]) @ (scale**0.5 * qk[1]).mT).softmax(-1)
            maps = handed = own if handed is None else own + scale * handed
        else:
            maps = scale * bottleneck(handed, block.plugs['refiner']['map'], training)
        x = x + block.attn.proj((maps @ v)[:, 0].transpose(1, 2).flatten(2)) / 0.5
        x = x + block.plugs['refiner']['mlp_end'].scale * mlp_of(block, norm(block.ln2, x)) / 0.5
    return x


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize(('num_layers', 'expansion', 'side'), [(4, 3, 3), (6, 2, 5)])
def test_official_scheme_is_the_description(num_layers, expansion, side, training):
    plugs = [dict(expansion=expansion, kernel_size=side, **OFFICIAL)]
    settings = dict(img_size=(16, 24), layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6)))
    model = vit(arch=dict(VIT_ARCH, num_layers=num_layers), plugs=plugs, **settings)
    assert all((layer.plugs['refiner']['mlp_end'].scale == 1e-5).all() for layer in model.layers)
    model = randomize(model).double().train(training)
    for i, norm in enumerate(norms(model.layers)):
        norm.running_mean += 0.1 * noise(norm.num_features, seed=i)
        norm.running_var *= 0.5 + noise(norm.num_features, seed=i).abs()
    # Small tokens, whose variance the epsilon changes.
    site, x = Site(GlobalLayout(2, 3, 1)), (0.01 * noise(2, 7, VIT_ARCH['embed_dims'])).requires_grad_()
    expected = official_oracle(model.layers, x, training)
    got, carry = x, {}
    for block in model.layers:
        got, carry = block(got, site, carry)
    assert_same([got], [expected], [x, *model.layers.parameters()], rtol=1e-6, atol=1e-7)


def test_sharing_blocks_reuse_the_same_draw_of_dropout():
    torch.manual_seed(0)
    model = vit(plugs=[dict(type='Refiner', share=1, expansion=0)], layer_cfgs=dict(attn_drop_rate=0.5)).train()
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), ('probs', 'maps'))
    assert torch.equal(found['maps'][0], found['maps'][1])
    dropped = found['maps'][0] == 0
    assert 0.4 < dropped.float().mean() < 0.6
    assert_close(found['maps'][0], torch.where(dropped, 0, 2 * found['probs'][0]))


# --- stock checkpoints ---


def test_a_stock_checkpoint_keeps_what_the_heads_keep():
    dims, plain, shared = VIT_ARCH['embed_dims'], randomize(vit()), vit(plugs=[dict(type='Refiner', share=1)])
    missing, unexpected = shared.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and all('refiner' in key for key in missing)
    for i, (stock, own) in enumerate(zip(plain.layers, shared.layers, strict=True)):
        kept = slice(2 * dims if i % 2 else 0, None)
        assert torch.equal(own.attn.qkv.weight, stock.attn.qkv.weight[kept])
        assert torch.equal(own.attn.qkv.bias, stock.attn.qkv.bias[kept])
        assert torch.equal(own.attn.proj.weight, stock.attn.proj.weight)
