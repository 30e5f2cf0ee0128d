"""Residual attention against Eq. (10), with the score stream written out."""

import itertools

import pytest
import torch
from cases import HOSTS, images, randomize, swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, WindowLayout, fused_attention
from vitplug.plugs.residual_attention import blend as blending
from vitplug.plugs.residual_attention import transitions

SIZE = (40, 56)


def residual(**settings):
    return [dict(type='ResidualAttention', **settings)]


def build(host, **settings):
    return randomize(HOSTS[host](plugs=residual(**settings))).double().eval()


def alphas(model):
    return [p for name, p in model.named_parameters() if 'residual_alpha' in name]


def streams(model, x):
    names = ('scores', 'bias', 'logits')
    _, found = model.forward_intermediates(x, names)
    blocks = range(len(model.plugged_blocks()))
    return [[found[name].get(i) for i in blocks] if name in found else [None] * len(blocks) for name in names]


def add(a, b):
    return a if b is None else a + b


def blend_oracle(alpha, own, before, bias, bias_mode):
    """One step: the logits, and what is handed on."""
    if bias_mode == 'blend':
        own = add(own, bias)
    mixed = own if before is None else alpha * own + (1 - alpha) * before
    logits = mixed if bias_mode == 'blend' else add(mixed, bias)
    return logits, mixed if bias_mode == 'after' else logits


@pytest.mark.parametrize('bias_mode', ['after', 'blend', 'after_carried'])
@pytest.mark.parametrize('per_layer', [False, True])
@pytest.mark.parametrize('size', [(32, 40), (37, 51), (8, 8)], ids=str)
def test_vit_follows_the_recursion(bias_mode, per_layer, size):
    plugs = [*residual(per_layer=per_layer, bias_mode=bias_mode), dict(type='GaussianAttentionBias')]
    model = randomize(vit(plugs=plugs)).double().eval()
    shares = iter(alphas(model) * (1 if per_layer else 3))
    before = None
    for own, bias, logits in zip(*streams(model, images(*size)), strict=True):
        alpha = None if before is None else next(shares)
        expected, before = blend_oracle(alpha, own, before, bias, bias_mode)
        assert_close(logits, expected)


def masks_of(model, hw):
    """The shift masks block by block, for the stages of a Swin with two blocks each."""
    masks = []
    for stage in model.stages:
        for block in stage.blocks:
            mask = block.attn.layout(hw).mask(torch.device('cpu'))
            masks.append(0 if mask is None else mask[:, None].double())
        hw = tuple(-(-side // 2) for side in hw)
    return masks


def pool_oracle(scores, old, new, heads):
    """Each new window: the mean over the old windows in its share of the window grid, and over heads."""
    out = []
    for r, c in itertools.product(range(new[0]), range(new[1])):
        rows = range(r * old[0] // new[0], -(-(r + 1) * old[0] // new[0]))
        cols = range(c * old[1] // new[1], -(-(c + 1) * old[1] // new[1]))
        covered = torch.stack([scores[:, y * old[1] + x] for y in rows for x in cols])
        out.append(covered.mean(0).mean(1, keepdim=True).expand(-1, heads, -1, -1))
    return torch.stack(out, dim=1)


def flat_oracle(scores, new_windows, heads):
    flat = [scores[:, w, h] for w in range(scores.shape[1]) for h in range(scores.shape[2])]
    length = new_windows * heads
    picked = [flat[int(i * len(flat) / length)] for i in range(length)]
    return torch.stack(picked, dim=1).unflatten(1, (new_windows, heads))


@pytest.mark.parametrize('bias_mode', ['after', 'blend', 'after_carried'])
@pytest.mark.parametrize('transition', ['pool', 'flat_nearest', 'reset'])
@pytest.mark.parametrize('host', ['swin', 'swin-pad-small', 'swin-v2'])
def test_swin_follows_the_recursion(host, transition, bias_mode):
    model = build(host, stage_transition=transition, bias_mode=bias_mode)
    (alpha,) = alphas(model)
    hw = (10, 14)
    before = None
    steps = zip(*streams(model, images(*SIZE)), masks_of(model, hw), strict=True)
    for index, (own, bias, logits, mask) in enumerate(steps):
        if index == 2:
            before = {
                'pool': lambda s: pool_oracle(s, (3, 4), (2, 2), 4),
                'flat_nearest': lambda s: flat_oracle(s, 4, 4),
                'reset': lambda s: None,
            }[transition](before)
        expected, before = blend_oracle(alpha, own, before, bias, bias_mode)
        assert_close(logits, expected + mask)


def test_swin_parity_blends_blocks_of_the_same_shift():
    arch = dict(embed_dims=8, depths=[4, 2], num_heads=[2, 4])
    model = randomize(swin(arch=arch, plugs=residual(window_align='parity'))).double().eval()
    (alpha,) = alphas(model)
    before = {0: None, 1: None}
    steps = zip(*streams(model, images(*SIZE)), masks_of(model, (10, 14)), strict=True)
    for index, (own, bias, logits, mask) in enumerate(steps):
        shifted = index % 2
        if index >= 4:
            before[shifted] = pool_oracle(before[shifted], (3, 4), (2, 2), 4)
        expected, before[shifted] = blend_oracle(alpha, own, before[shifted], bias, 'after')
        assert_close(logits, expected + mask)


def tokens_of(layout):
    """Window -> place -> the token there, as its position on the padded map."""
    height, width = layout.padded
    for r, c in itertools.product(range(layout.windows[0]), range(layout.windows[1])):
        ys = [(r * layout.window + i + layout.shift) % height for i in range(layout.window)]
        xs = [(c * layout.window + i + layout.shift) % width for i in range(layout.window)]
        yield [y * width + x for y in ys for x in xs]


@given(height=st.integers(1, 9), width=st.integers(1, 9), shifts=st.permutations([0, 1, 2]), seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_token_alignment_finds_every_pair(height, width, shifts, seed):
    old, new = WindowLayout(height, width, 3, shifts[0]), WindowLayout(height, width, 3, shifts[1])
    windows = old.windows[0] * old.windows[1]
    scores = torch.randn(2, windows, 2, 9, 9, generator=torch.Generator().manual_seed(seed))
    got, known = transitions.align_tokens(scores, Site(old), Site(new), 2)
    slot = {token: (w, p) for w, tokens in enumerate(tokens_of(old)) for p, token in enumerate(tokens)}
    for w, tokens in enumerate(tokens_of(new)):
        for (p, a), (q, b) in itertools.product(enumerate(tokens), enumerate(tokens)):
            shared = slot[a][0] == slot[b][0]
            assert known[w, 0, p, q] == shared
            if shared:
                assert torch.equal(got[:, w, :, p, q], scores[:, slot[a][0], :, slot[a][1], slot[b][1]])


def test_a_quarter_of_the_pairs_shares_a_window():
    """Window 7, shift 3, away from the border."""
    old, new = WindowLayout(28, 28, 7), WindowLayout(28, 28, 7, 3)
    _, known = transitions.align_tokens(torch.zeros(1, 16, 1, 49, 49), Site(old), Site(new), 1)
    assert round(known.double().mean().item(), 4) == 0.2603


def test_swin_token_alignment_leaves_other_pairs_alone():
    model = build('swin', window_align='token')
    (alpha,) = alphas(model)
    scores, bias, logits = streams(model, images(*SIZE))
    old, new = WindowLayout(10, 14, 4), WindowLayout(10, 14, 4, 2)
    aligned, known = transitions.align_tokens(scores[0], Site(old), Site(new), 2)
    expected = torch.where(known, alpha * scores[1] + (1 - alpha) * aligned, scores[1]) + bias[1]
    assert_close(logits[1], expected + masks_of(model, (10, 14))[1])


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=5), seed=st.integers(0, 9))
def test_coefficients_of_the_sum_sum_to_one(values, seed):
    """S_l is a mean of all scores so far, with weights alpha_m prod_{j>m} (1 - alpha_j)."""
    scores = torch.randn(len(values) + 1, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    site, carry = Site(GlobalLayout(1, 3)), {}
    for index, own in enumerate(scores):
        alpha = blending.Alpha(values[index - 1], 'fixed') if index else None
        blend = blending.Blend('s', 'after', transitions.keep if index else None, alpha)
        logits, carry = blend(own[None, None, None], None, site, carry)
    weights = [1.0] * len(scores)
    for m in range(len(scores)):
        weights[m] = values[m - 1] if m else 1.0
        for alpha in values[m:]:
            weights[m] *= 1 - alpha
    assert sum(weights) == pytest.approx(1)
    assert_close(logits[0, 0, 0], sum(w * s for w, s in zip(weights, scores, strict=True)))


def test_softmax_of_blended_scores_is_the_geometric_mean_of_the_maps():
    own, before = torch.randn(2, 4, 4, dtype=torch.float64)
    blend = blending.Blend('s', 'after', transitions.keep, blending.Alpha(0.3, 'fixed'))
    site = Site(GlobalLayout(1, 4))
    logits, _ = blend(own[None, None, None], None, site, {'s': (before[None, None, None], site)})
    geometric = own.softmax(-1) ** 0.3 * before.softmax(-1) ** 0.7
    assert_close(logits.softmax(-1)[0, 0, 0], geometric / geometric.sum(-1, keepdim=True))


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('settings', [dict(alpha=1.0), dict(alpha=1.0, learnable=False)], ids=str)
def test_alpha_of_one_is_the_plain_host_bit_for_bit(host, settings):
    plain = randomize(HOSTS[host]()).eval()
    plugged = HOSTS[host](plugs=residual(**settings)).eval()
    plugged.load_state_dict(plain.state_dict(), strict=False)
    x = images(37, 51, dtype=torch.float32)
    with fused_attention(False):
        for expected, got in zip(plain(x), plugged(x), strict=True):
            assert torch.equal(got, expected)


def test_gradient_flows_through_the_handed_over_scores():
    """Detaching them would leave every value right and this gradient wrong."""
    model = build('vit')
    (alpha,) = alphas(model)
    x = images(32, 40)

    def loss():
        return sum(out.square().sum() for out in model(x))

    loss().backward()
    with torch.no_grad():
        alpha += 1e-6
        above = loss()
        alpha -= 2e-6
        below = loss()
    assert alpha.grad.item() == pytest.approx(((above - below) / 2e-6).item(), rel=1e-4)


@pytest.mark.parametrize(
    ('settings', 'vit_alphas', 'swin_alphas'),
    [
        (dict(), 1, 1),
        (dict(per_layer=True), 3, 3),
        (dict(per_layer=True, stage_transition='reset'), 3, 2),
        (dict(per_layer=True, window_align='parity'), 3, 2),
        (dict(learnable=False), 0, 0),
        (dict(per_layer=True, layers=[1, 3]), 1, 1),
    ],
    ids=str,
)
def test_no_alpha_without_a_blend(settings, vit_alphas, swin_alphas):
    for host, expected in (('vit', vit_alphas), ('swin', swin_alphas)):
        found = alphas(HOSTS[host](plugs=residual(**settings)))
        assert [tuple(p.shape) for p in found] == [(1,)] * expected


def test_a_block_without_a_partner():
    """Alone, it is refused; beside a chain it stays as it is, with fused attention."""
    for host in (vit, swin):
        with pytest.raises(ValueError, match=r'layers=\[2\] changes nothing: no block of \[2\]'):
            host(plugs=residual(layers=[2]))
    model = swin(plugs=residual(layers=[1, 2, 3], stage_transition='reset'))
    assert [bool(block.plugs.at('scores')) for block in model.plugged_blocks()] == [False, False, True, True]
    assert 'fused but on blocks 2-3 ' in model.plug_summary


@pytest.mark.parametrize(
    'settings', [{}, dict(per_layer=True), dict(low_memory=True, stage_transition='reset')], ids=str
)
@pytest.mark.parametrize('host', ['vit', 'swin'])
@pytest.mark.parametrize(('outside', 'projected'), [(1.5, 1.0), (-0.25, 0.0)])
def test_projection_counts_in_evaluation_too(host, settings, outside, projected):
    """Evaluation gives what a training forward gives, and leaves the parameter as it is."""
    model, x = randomize(HOSTS[host](plugs=residual(**settings))).double().eval(), images(32, 40)
    assert alphas(model)
    outs = {}
    for value in (outside, projected):
        for alpha in alphas(model):
            alpha.data.fill_(value)
        before = [alpha.clone() for alpha in alphas(model)]
        outs[value] = model(x)
        assert_close(alphas(model), before, rtol=0, atol=0)
    assert_close(outs[outside], outs[projected], rtol=0, atol=0)
    for alpha in alphas(model):
        alpha.data.fill_(outside)
    assert_close(model.train()(x), outs[projected], rtol=0, atol=0)
    assert {alpha.item() for alpha in alphas(model)} == {projected}


def test_free_alpha_stays_raw():
    model, x = randomize(vit(plugs=residual(constraint='none'))).double(), images(32, 40)
    (alpha,) = alphas(model)
    outs = {}
    for value in (1.5, 1.0):
        alpha.data.fill_(value)
        outs[value] = model.train()(x)
        assert_close(model.eval()(x), outs[value], rtol=0, atol=0)
        assert alpha.item() == value
    assert not torch.allclose(outs[1.5][0], outs[1.0][0])


def test_sigmoid_learns_the_logit():
    model = vit(plugs=residual(alpha=0.75, constraint='sigmoid'))
    assert_close(alphas(model)[0].sigmoid().item(), 0.75)


@pytest.mark.integration
def test_compiles_in_training():
    model = vit(plugs=residual()).train()
    x = images(32, 40, dtype=torch.float32)
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    alphas(model)[0].data.fill_(1.5)
    assert_close(compiled(x), model(x))
    assert alphas(model)[0].item() == 1.0


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(alpha=1.5), 'alpha=1.5: expected a number at least 0.0 and at most 1.0'),
        (dict(alpha='half'), "alpha='half': expected a number"),
        (dict(learnable='no'), "learnable='no': expected True or False"),
        (dict(constraint='clamp'), r"constraint='clamp': expected one of .*project"),
        (dict(constraint='sigmoid', alpha=1.0), "constraint='sigmoid' never reaches 0 or 1"),
        (dict(bias_mode='before'), r"bias_mode='before': expected one of .*after_carried"),
        (dict(window_align='roll'), r"window_align='roll': expected one of .*parity"),
        (dict(stage_transition='keep'), r"stage_transition='keep': expected one of .*flat_nearest"),
        (dict(head_transition='max'), r"head_transition='max': expected one of .*repeat"),
    ],
    ids=str,
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        vit(plugs=residual(**settings))


def test_heads_that_cannot_be_repeated():
    arch = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 3])
    with pytest.raises(ValueError, match=r"head_transition='repeat' cannot make 3 heads \(block 2\) of 2 \(block 1\)"):
        swin(arch=arch, plugs=residual(head_transition='repeat'))
    swin(arch=arch, plugs=residual(head_transition='repeat', stage_transition='reset'))


def test_heads_are_repeated():
    scores = torch.randn(1, 2, 2, 3, 3)
    got = transitions.repeat_heads(scores, 4)
    assert torch.equal(got[:, :, 1], scores[:, :, 0]) and torch.equal(got[:, :, 2], scores[:, :, 1])


@pytest.mark.parametrize('transition', ['mean', 'repeat'])
def test_blocks_that_reuse_a_map_are_refused(transition):
    plugs = [dict(type='Refiner', share=1, layers=[0, 1]), *residual(head_transition=transition, layers=[1, 2])]
    with pytest.raises(ValueError, match=r"'residual_attention'.* need q and k of block 1"):
        vit(plugs=plugs)


@pytest.mark.parametrize('settings', [dict(), dict(window_align='index'), dict(stage_transition='flat_nearest')])
def test_low_memory_refuses_other_windows_and_heads(settings):
    with pytest.raises(ValueError, match='low_memory=True cannot hand the scores of block 1 on to block 2'):
        swin(plugs=residual(low_memory=True, **settings))


def test_low_memory_is_chosen_by_the_number_of_tokens():
    blend = vit(plugs=residual()).plugged_blocks()[1].plugs['residual_attention']['scores']
    assert not blend.widens(Site(GlobalLayout(44, 46, 1))) and blend.widens(Site(GlobalLayout(44, 47, 1)))
    never = vit(plugs=residual(low_memory=False)).plugged_blocks()[1].plugs['residual_attention']['scores']
    assert not never.widens(Site(GlobalLayout(1000, 1000)))
    moved = swin(plugs=residual()).plugged_blocks()[1].plugs['residual_attention']['scores']
    assert not moved.widens(Site(GlobalLayout(100, 100)))


def test_scores_start_anew_between_windows_and_global_attention():
    """Blocks 0 and 2 attend in windows, 1 and 3 globally: only blocks of one kind can share scores."""
    settings = dict(with_cls_token=False, window_size=3, global_blocks=(1, 3))
    with pytest.raises(ValueError, match=r"'all' changes nothing: no block of \[0, 1, 2, 3\].*'index' \(parity"):
        vit(plugs=residual(), **settings)
    model = randomize(vit(plugs=residual(window_align='parity'), **settings)).double().eval()
    (alpha,) = alphas(model)
    own, _, logits = streams(model, images(*SIZE))
    for first, second in ((0, 2), (1, 3)):
        assert_close(logits[first], own[first])
        assert_close(logits[second], alpha * own[second] + (1 - alpha) * own[first])
