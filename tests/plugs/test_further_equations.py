"""Each further paper's equation, written out in float64 from q, k and v: outputs and gradients of one attention branch,
with a class token, in shifted windows, and on a grid that is not square."""

import math

import pytest
import torch
from attention_oracle import assert_same, gradients
from cases import images, mvit, randomize, swin, vit, vit_with_windows
from timm.layers.pos_embed_sincos import (
    RotaryEmbeddingCat,
    RotaryEmbeddingDinoV3,
    RotaryEmbeddingMixed,
    apply_rot_embed_cat,
)
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import AttentionScale, AttentionSink, LocalitySelfAttention
from vitplug.plugs.entmax_attention import NEAR, _Entmax
from vitplug.plugs.exclusive_self_attention import WithoutOwn
from vitplug.plugs.softpick_attention import Softpick

HOSTS = {'vit': vit, 'swin': swin}


class Branch:
    """The attention branch of one block, as recorded with its gradients."""

    def __init__(self, host, plugs, index=1, size=(32, 40), **settings):
        self.model = randomize(HOSTS[host](plugs=plugs, **settings)).double()
        self.index, self.x = index, images(*size)
        _, found = self.model.forward_intermediates(self.x, ('q', 'k', 'v', 'attn', 'site', 'block'), with_grad=True)
        self.q, self.k, self.v, self.attn, self.site = (found[n][index] for n in ('q', 'k', 'v', 'attn', 'site'))
        self.found, self.block = found, self.model.plugged_blocks()[index]
        inner = self.block.attn
        self.attention = getattr(inner, 'w_msa', inner)
        self.hidden = self.site.mask if self.site.mask is not None else torch.zeros(1, 1, 1, 1).double()
        bias = self.attention.biases(self.site)
        self.bias = bias[0].expand() if bias else 0.0
        self.part = next(iter(self.block.plugs.values()))

    @property
    def logits(self):
        """Scores, the host's bias and the mask of shifted windows."""
        return self.q @ self.k.mT * self.attention.scale + self.bias + self.hidden.unsqueeze(2)

    def project(self, heads_BWHNd):
        """The output of the branch, of those of the heads."""
        tokens = self.site.layout.from_windows(heads_BWHNd.transpose(2, 3).flatten(3))
        return self.attention.proj(tokens)

    def assert_is(self, expected, leaves=None):
        """Values and gradients, of the host's weights where q and k are recorded after the plug has changed them."""
        own = list(self.part.parameters())
        leaves = [self.q, self.k, self.v] if leaves is None else leaves
        assert_same([self.attn], [expected], [*leaves, *own])
        assert all(grad.abs().sum() > 0 for grad in gradients([self.attn], own))


@pytest.fixture(params=HOSTS)
def host(request):
    return request.param


def visible(branch):
    """1 for pairs that may see each other."""
    return (branch.hidden == 0).double().unsqueeze(2).expand_as(branch.logits)


@pytest.mark.parametrize('counts_masked', [False, True])
def test_attention_scale(host, counts_masked):
    b = Branch(host, [AttentionScale(counts_masked=counts_masked)])
    sees = torch.ones_like(b.logits) if counts_masked else visible(b)
    uniform = sees / sees.sum(-1, keepdim=True)
    w = b.part['map'].attention_scale[:, None, None]
    b.assert_is(b.project((uniform + (1 + w) * (b.logits.softmax(-1) - uniform)) @ b.v))
    assert 'has an exact fast form' in b.model.plug_summary


@pytest.mark.parametrize('start', [0.0, -2.0])
@pytest.mark.parametrize('learnable', [True, False])
def test_sink(host, start, learnable):
    plugs = [AttentionSink(learnable=learnable, start=start)]
    b = Branch(host, plugs)
    s = b.part['extra_keys'].sink_logit[:, :, None] if learnable else torch.tensor(start).double()
    exps = b.logits.exp()
    b.assert_is(b.project(exps / (s.exp() + exps.sum(-1, keepdim=True)) @ b.v))
    assert b.model.plug_summary.endswith('attention: fused')


def own_q_and_k(branch):
    """q and k before the plugs change them, with the parameters on their way."""
    inner, block = branch.attention, branch.block
    norm = block.ln1 if hasattr(block, 'ln1') else block.norm1
    tokens = norm(branch.found['block'][0])
    q, k, _ = inner.to_heads(tokens, branch.site)
    return tuple(t.unflatten(0, (-1, branch.site.num_windows)) for t in (q, k))


@pytest.mark.parametrize('diagonal', [False, True])
def test_locality(host, diagonal):
    b = Branch(host, [LocalitySelfAttention(diagonal=diagonal)])
    q, k = own_q_and_k(b)
    q = b.part['qkv'].temperature[:, None, None] * q
    logits = q @ k.mT * b.attention.scale + b.bias + b.hidden.unsqueeze(2)
    if not diagonal:
        logits = logits.masked_fill(torch.eye(logits.shape[-1], dtype=torch.bool), -torch.inf)
    b.assert_is(b.project(logits.softmax(-1) @ b.v), b.attention.parameters())
    assert b.model.plug_summary.endswith('attention: fused')
    _, found = b.model.forward_intermediates(b.x, 'probs')
    assert found['probs'][1].diagonal(dim1=-2, dim2=-1).any() == diagonal


def sums_to_one(z, alpha):
    """entmax by halving, row by row."""
    low, high = z.max() - 2 / (alpha - 1), z.max()
    for _ in range(200):
        middle = (low + high) / 2
        total = ((alpha - 1) * (z - middle)).clamp(min=0).pow(1 / (alpha - 1)).sum()
        low, high = (middle, high) if total >= 1 else (low, middle)
    return ((alpha - 1) * (z - low)).clamp(min=0).pow(1 / (alpha - 1))


def test_softpick_beside_a_key_of_no_token_in_shifted_windows():
    assert randomize(swin(plugs='sink+softpick')).double()(images(32, 40))[-1].isfinite().all()


def test_xsa_does_not_leave_float16():
    """The squared length of values of 40 does."""
    heads, own = (40 * torch.randn(1, 9, 2, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    wide, half = (WithoutOwn('xsa')(heads.to(t), None, None, {'xsa': own.to(t)}) for t in (torch.float32, torch.half))
    assert_close(half.float(), wide, rtol=1e-2, atol=0.2)


@pytest.mark.parametrize('alpha', [1.0, 1.3, 1.5, 2.0])
def test_entmax(host, alpha):
    model = randomize(HOSTS[host](plugs=f'entmax(alpha={alpha})')).double()
    _, found = model.forward_intermediates(images(32, 40, batch=1), ('logits', 'probs'))
    for index in (0, 1):
        rows = found['logits'][index].detach().flatten(0, -2)[::97]
        expected = torch.stack([row.softmax(0) if alpha == 1 else sums_to_one(row, alpha) for row in rows])
        assert_close(found['probs'][index].detach().flatten(0, -2)[::97], expected)
    assert alpha == 1 or (found['probs'][1] == 0).any()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(('alpha', 'is_learned'), [(1.2, False), (1.5, False), (1.01, True), (2, True)])
def test_thresholds_of_entmax_are_exact(alpha, is_learned, dtype):
    """Rows of many nearly equal, of few large and of hidden logits, against the halving of an interval in float64."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(4096, generator=draw) * scale for scale in (0.01, 1, 5)] + [torch.zeros(4096)]
    rows += [torch.randn(16384, generator=draw) * scale for scale in (0.03, 0.1)]
    rows += [-torch.arange(4096) * 0.02, torch.where(torch.arange(4096) % 2 == 0, 0.0, -1e4), torch.zeros(1)]
    tolerance = dict(rtol=2e-4, atol=2e-6) if dtype == torch.float32 else dict(rtol=1e-9, atol=1e-13)
    for row in rows:
        z = row.to(dtype)[None, None, None, None]
        got = _Entmax.apply(z, torch.full((1,), alpha, dtype=dtype) if is_learned else alpha, NEAR)[0, 0, 0, 0]
        assert_close(got.double(), sums_to_one(row.to(dtype).double(), alpha), **tolerance)


@pytest.mark.parametrize('alpha', [1.0, 1.2, 1.5, 2.0])
def test_gradients_of_entmax(alpha):
    """Of logits and of alpha, by differences; rows that lie apart from where entries become 0."""
    z = torch.tensor([[3.0, 1.0, 0.2, -0.5], [0.1, 0.0, -0.1, 0.3]], dtype=torch.float64)[None, None, None]
    z.requires_grad_()
    torch.autograd.gradcheck(lambda z: _Entmax.apply(z, alpha, NEAR), z)
    learned = torch.full((1,), alpha, dtype=torch.float64).requires_grad_()
    if alpha > 1:
        torch.autograd.gradcheck(_Entmax.apply, (z, learned, NEAR))
    else:  # there is no entmax below: the gradient is the limit
        near = torch.full((1,), 1.0001, dtype=torch.float64).requires_grad_()
        found = [gradients([_Entmax.apply(z, a, NEAR)], [z, a]) for a in (learned, near)]
        assert_close(*found, rtol=1e-2, atol=1e-3)


def test_sigmoid(host):
    b = Branch(host, 'sigmoid')
    weights = (b.logits - math.log(b.logits.shape[-1])).sigmoid()
    b.assert_is(b.project(weights @ b.v))


def test_softpick(host):
    b = Branch(host, 'softpick')
    above_one = (b.logits.exp() - 1) * visible(b)
    eps = 1e-8 * b.logits.detach().amax(-1, keepdim=True).clamp(min=0).exp()  # added after a shift of the exponents
    b.assert_is(b.project(above_one.clamp(min=0) / (above_one.abs().sum(-1, keepdim=True) + eps) @ b.v))


def test_softpick_of_logits_below_zero_and_of_large_ones_is_finite():
    z = torch.tensor([[-1000.0, -3.0, -0.1], [900.0, 0.0, 899.0], [0.0, 0.0, 0.0]])[None, None, None].requires_grad_()
    maps = Softpick()(z, Site(GlobalLayout(1, 3)), {})
    assert_close(maps[0, 0, 0], torch.tensor([[0.0, 0, 0], [1 / (1 + math.exp(-1)), 0, 1 / (1 + math.e)], [0, 0, 0]]))
    assert torch.autograd.grad(maps[..., 0].sum(), z)[0].isfinite().all()


def test_re_attention(host):
    """In training: by the statistics of all images, windows and pairs."""
    b = Branch(host, 're-attention')
    mix, norm = b.part['map'].mix, b.part['map'].norm
    mixed = torch.einsum('gh,bwhqk->bwgqk', mix.weight[:, :, 0, 0], b.logits.softmax(-1)) + mix.bias[:, None, None]
    every = (0, 1, 3, 4)
    mean, variance = mixed.mean(every, keepdim=True), mixed.var(every, keepdim=True, unbiased=False)
    normed = (mixed - mean) / (variance + norm.eps).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
    b.assert_is(b.project(normed * visible(b) @ b.v))


def test_qk_norm(host):
    b = Branch(host, 'qk-norm')
    normed = []
    for t, norm in zip(own_q_and_k(b), (b.part['qkv'].q, b.part['qkv'].k), strict=True):
        centred = t - t.mean(-1, keepdim=True)
        normed.append(centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias)
    logits = normed[0] @ normed[1].mT * b.attention.scale + b.bias + b.hidden.unsqueeze(2)
    b.assert_is(b.project(logits.softmax(-1) @ b.v), b.attention.parameters())


def test_head_scale(host):
    b = Branch(host, 'head-scale')
    b.assert_is(b.project(b.part['heads'].head_scale[:, None, None] * (b.logits.softmax(-1) @ b.v)))


@pytest.mark.parametrize('gated', [False, True])
def test_exclusive_self_attention(host, gated):
    b = Branch(host, f'xsa(gated={gated})')
    out = b.logits.softmax(-1) @ b.v
    unit = b.v / b.v.norm(dim=-1, keepdim=True)
    share = b.part['heads'].xsa_gate.tanh() if gated else 1
    expected = out - share * (out * unit).sum(-1, keepdim=True) * unit
    b.assert_is(b.project(expected))


def test_neutreno(host):
    b = Branch(host, 'neutreno(strength=0.7)')
    first, own = (b.found['site'][i].layout.from_windows(b.found['v'][i].transpose(2, 3).flatten(3)) for i in (0, 1))
    out = b.logits.softmax(-1) @ b.v
    tokens = b.site.layout.from_windows(out.transpose(2, 3).flatten(3)) + 0.7 * (first - own)
    b.assert_is(b.attention.proj(tokens))


def test_a_gate_for_each_head():
    b = Branch('vit', 'gate(granularity="head")', index=0)
    tokens = b.block.ln1(b.model.embed(b.x)[0])
    gates = b.part['heads'].gate(tokens).sigmoid()  # (B, N, H)
    b.assert_is(b.project(gates.transpose(1, 2)[:, None, ..., None] * (b.logits.softmax(-1) @ b.v)))


def test_feature_scale(host):
    b = Branch(host, 'feat-scale')
    x = b.project(b.logits.softmax(-1) @ b.v)
    mean, part = x.mean(1, keepdim=True), b.part['msa']
    b.assert_is(x + part.of_mean * mean + part.of_rest * (x - mean))


@pytest.mark.parametrize('build', [vit, swin, mvit])
def test_conditional_positions(build):
    """A convolution by sums over shifted maps, after the first block of each stage."""
    model = randomize(build(plugs='peg')).double()
    x = images(32, 32)
    _, found = model.forward_intermediates(x, 'block')
    plain = build().double()
    plain.load_state_dict(model.state_dict(), strict=False)
    _, without = plain.forward_intermediates(x, 'block')
    conv, hw = model.plugged_blocks()[0].plugs['conditional_position']['block_out'], model.grid_of(0, (32, 32))
    tokens, prefix = without['block'][0], without['block'][0].shape[1] - hw[0] * hw[1]
    padded = torch.nn.functional.pad(tokens[:, prefix:].unflatten(1, hw), (0, 0, 1, 1, 1, 1))
    added = sum(padded[:, i : i + hw[0], j : j + hw[1]] * conv.weight[:, 0, i, j] for i in range(3) for j in range(3))
    expected = torch.cat((tokens[:, :prefix], tokens[:, prefix:] + (added + conv.bias).flatten(1, 2)), 1)
    got = found['block'][0]
    assert_close(got, expected)
    pairs = zip((got, expected), (model, plain), strict=True)
    assert_close(*(gradients([out], [conv.weight, conv.bias, next(m.parameters())]) for out, m in pairs))
    stages = [plan.stage for plan in model._plans()]
    have = [bool(block.plugs) for block in model.plugged_blocks()]
    assert have == [stage not in stages[:i] for i, stage in enumerate(stages)]


# The contract has the others.
FURTHER = ['feat-scale', 'rope', 'rope(mode="mixed")', 'rope(mode="dinov3")', 'peg(start="paper")', 'sigmoid', 'diff']
FURTHER += ['re-attention', 'qk-norm', 'head-scale', 'xsa', 'xsa(gated=True)', 'softpick', 'gaug']


@pytest.mark.parametrize('build', HOSTS)
@pytest.mark.parametrize('plugs', FURTHER)
def test_bfloat16_on_a_map_that_is_not_square(plugs, build):
    """Under autocast near float32, with finite gradients for every parameter of the plug."""
    settings = dict(layer_cfgs=dict(num_heads=2)) if build == 'vit' else dict(arch=EVEN_SWIN)
    model = randomize(HOSTS[build](plugs=plugs, **settings)).eval()
    x = images(48, 40, dtype=torch.float32)
    expected = model(x)[-1]
    with torch.autocast('cpu', torch.bfloat16):
        got = model(x)[-1]
    assert (got.float() - expected).abs().mean() < 0.05 * expected.abs().mean()
    got.float().square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if 'plugs' in name.split('.')}
    assert all(grad is not None and grad.isfinite().all() for grad in grads.values())


LEARNED = {
    'gate': ('gated_attention.gate', lambda part: part['heads'].gate.bias.sigmoid()),
    'gate(start="identity")': ('gated_attention.gate', lambda part: 2 * part['heads'].gate.bias.sigmoid()),
    'diff': ('differential_attention.lambda-l0', lambda part: part['map'].share - part['map'].start),
    'entmax(learnable=True)': ('entmax_attention.alpha', lambda part: part['normalise'].entmax_alpha.clamp(1, 2)),
    'lsa': ('locality_self_attention.t', lambda part: part['qkv'].temperature),
    'sink': ('attention_sink.s', lambda part: part['extra_keys'].sink_logit),
    'xsa(gated=True)': ('exclusive_self_attention.tanh g', lambda part: part['heads'].xsa_gate.tanh()),
    'head-scale': ('head_scale.g', lambda part: part['heads'].head_scale),
    'rope(mode="mixed")': ('rotary_position.f', lambda part: part['qkv'].frequencies),
    'value-residual(learnable=True)': ('value_residual.lambda', lambda part: part['qkv'].value_lambda),
}


@pytest.mark.parametrize('plugs', LEARNED)
def test_values_that_are_watched(plugs):
    """As they act, whatever training has made of them."""
    model = vit(plugs=plugs, layer_cfgs=dict(num_heads=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.5, 2.5)
    name, expected = LEARNED[plugs]
    found = model.learned_values()
    assert list(found) == [name] and len(found[name]) == 4 - plugs.startswith('value')
    part = next(iter(model.layers[1].plugs.values()))
    assert_close(found[name][1], expected(part).detach())


# --- against timm ---


def rope(mode, **settings):
    plug = dict(type='RotaryPosition', mode=mode, **settings)
    return randomize(vit(plugs=[plug], layer_cfgs=dict(num_heads=2))).double()


@pytest.mark.parametrize('mode', ['axial', 'dinov3', 'mixed'])
def test_rotation_is_timms(mode):
    """q and k of the first block by timm's table of sines and cosines, which is in float32."""
    model, x = rope(mode), images(32, 40)
    if mode == 'mixed':
        theirs = RotaryEmbeddingMixed(24, 4, 2)
        for index, block in enumerate(model.layers):
            theirs.freqs.data[:, index] = block.plugs['rotary_position']['qkv'].frequencies.float()
        table = theirs.get_embed([4, 5])[0].double()
    elif mode == 'axial':
        axial = RotaryEmbeddingCat(12, in_pixels=False, temperature=100.0, grid_indexing='xy')
        table = axial.get_embed([4, 5]).double()
    else:
        table = RotaryEmbeddingDinoV3(12).get_embed([4, 5]).double()
    block, (tokens, _) = model.layers[0], model.embed(x)
    own = block.attn.split_heads(block.attn.qkv(block.ln1(tokens)))[:2]
    patches = [apply_rot_embed_cat(t[:, :, 1:], table, half=mode == 'dinov3') for t in own]
    expected = [torch.cat((t[:, :, :1], turned), 2) for t, turned in zip(own, patches, strict=True)]
    _, found = model.forward_intermediates(x, ('q', 'k'), layers=[0])
    got = [found[name][0].squeeze(1) for name in 'qk']
    assert_same(got, expected, [block.attn.qkv.weight], rtol=1e-4, atol=1e-4)


def test_mixed_frequencies_start_as_in_the_paper():
    fresh = vit(plugs='rope(mode="mixed")', layer_cfgs=dict(num_heads=2)).layers[0].plugs['rotary_position']['qkv']
    lengths = (fresh.frequencies**2).sum(0).sqrt()
    assert_close(lengths, (10.0 ** -(torch.arange(0, 12, 4) / 12)).repeat(2).expand(2, -1))


def test_moved_coordinates_in_training_alone():
    moved = rope('dinov3', rescale=2.0, jitter=1.5, shift=0.3)
    plain = rope('dinov3')
    plain.load_state_dict(moved.state_dict())
    x = images(32, 40)
    assert_close(moved.eval()(x), plain.eval()(x))
    part, site = moved.layers[0].plugs['rotary_position']['qkv'], moved._plans()[0].site
    y, x_ = (places[1:] for places in part.train().places(site.layout, torch.float64, torch.device('cpu')))
    assert y.unique().numel() == site.layout.hw[0] and x_.unique().numel() == site.layout.hw[1]
    spread = (y.max() - y.min()) / (2 - 2 / site.layout.hw[0])
    assert 1 / 3 <= spread <= 3 and spread != 1


@pytest.mark.parametrize('mode', ['axial', 'mixed', 'dinov3'])
def test_places_move_once_a_forward(mode):
    """For all blocks that train, also behind a frozen one."""
    first, second = (block.plugs['rotary_position']['qkv'].train() for block in rope(mode, jitter=1.5).layers[:2])
    if mode == 'mixed':
        second.load_state_dict(first.state_dict())
    site = Site(GlobalLayout(3, 5, 1))
    q = torch.randn(1, 1, 2, 16, 12, dtype=torch.float64)
    rotated, _, _, carry = first(q, q, q, site, {})
    assert_close(second(q, q, q, site, carry)[0], rotated)
    assert (second(q, q, q, site, {})[0] - rotated).abs().max() > 1e-3
    *_, carry = first.eval()(q, q, q, site, {})
    moved = [second(q, q, q, site, carry)[0] for _ in range(2)]
    assert (moved[0] - moved[1]).abs().max() > 1e-3


@pytest.mark.parametrize('build', [vit, vit_with_windows, lambda **s: swin(arch=EVEN_SWIN, **s)])
@pytest.mark.parametrize('mode', ['axial', 'mixed', 'dinov3'])
def test_blocks_share_only_what_is_theirs(build, mode):
    """Blocks of one stage, with windows and without, at another size: as if each made its own table."""
    model = randomize(build(plugs=[dict(type='RotaryPosition', mode=mode)])).double()
    x = images(48, 40)
    got = model(x)
    for index, block in enumerate(model.plugged_blocks()):
        block.plugs['rotary_position']['qkv'].key = str(index)
    assert_close(got, model(x), rtol=0, atol=0)


@pytest.mark.parametrize('mode', ['axial', 'dinov3', 'mixed'])
def test_rotations_of_neighbours_are_the_same_in_a_graph(mode, monkeypatch):
    """As complex numbers, and in the real operations of compiled graphs; in half precision with angles of float32."""
    model = rope(mode)
    x = images(32, 40).requires_grad_()
    leaves = [x, *model.parameters()]
    expected = gradients(model(x), leaves)
    part, site = model.layers[0].plugs['rotary_position']['qkv'], model._plans()[0].site
    q = torch.randn(1, 1, 2, 21, 12, dtype=torch.float64)
    half = part(*3 * [q.bfloat16()], site, {})[0]
    assert half.dtype == torch.bfloat16
    assert_close(half, part(*3 * [q.bfloat16().double()], site, {})[0].bfloat16(), rtol=0.01, atol=0.01)
    monkeypatch.setattr('torch.compiler.is_compiling', lambda: True)
    assert_close(gradients(model(x), leaves), expected)


EVEN_SWIN = dict(embed_dims=16, depths=[2, 2], num_heads=[2, 4])
