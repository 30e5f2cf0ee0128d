"""Residual attention against Eq. (10), with the score stream written out."""

import itertools

import pytest
import torch
from attention_oracle import blended
from cases import HOSTS, VIT_ARCH, images, randomize, swin, vit
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site

SIZE = (40, 56)


def residual(**settings):
    return [dict(type='ResidualAttention', **settings)]


def alphas(model):
    return [p for name, p in model.named_parameters() if 'residual_alpha' in name]


def streams(model, x):
    names = ('scores', 'bias', 'logits')
    _, found = model.forward_intermediates(x, names)
    blocks = range(len(model.plugged_blocks()))
    return [[found[name].get(i) for i in blocks] if name in found else [None] * len(blocks) for name in names]


def masks_of(model, hw):
    """The shift masks block by block, of a Swin."""
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


TRANSITIONS = {
    'pool': lambda scores: pool_oracle(scores, (3, 4), (2, 2), 4),
    'flat_nearest': lambda scores: flat_oracle(scores, 4, 4),
    'reset': lambda scores: None,
}


@pytest.mark.parametrize(
    ('transition', 'bias_mode', 'align'),
    [
        *(('pool', 'after', 'index'), ('flat_nearest', 'after_carried', 'index'), ('reset', 'blend', 'index')),
        ('pool', 'after', 'parity'),
    ],
)
@pytest.mark.parametrize('host', ['swin', 'swin-pad-small', 'swin-v2'])
def test_swin_follows_the_recursion(host, transition, bias_mode, align):
    """By parity, blocks of the same shift are blended."""
    plugs = residual(stage_transition=transition, bias_mode=bias_mode, window_align=align)
    arch = dict(embed_dims=8, depths=[4, 2], num_heads=[2, 4])
    model = randomize(HOSTS[host](arch=arch, plugs=plugs)).double().eval()
    (alpha,) = alphas(model)
    before = [None, None]
    steps = zip(*streams(model, images(*SIZE)), masks_of(model, (10, 14)), strict=True)
    for index, (own, bias, logits, mask) in enumerate(steps):
        kind = index % 2 if align == 'parity' else 0
        if index == 4 + kind:  # the first of its kind in the second stage
            before[kind] = TRANSITIONS[transition](before[kind])
        expected, before[kind] = blended(alpha, own, before[kind], bias, bias_mode)
        assert_close(logits, expected + mask)


@pytest.mark.parametrize(
    'settings',
    [{}, dict(per_layer=True), dict(low_memory=True, stage_transition='reset'), dict(constraint='none')],
    ids=str,
)
@pytest.mark.parametrize('host', ['vit', 'swin'])
def test_projection_counts_in_evaluation_too(host, settings):
    """Evaluation gives what a training forward gives, and leaves the parameter as it is; free, it stays raw."""
    model, x = randomize(HOSTS[host](plugs=residual(**settings))).double(), images(32, 40)
    outs, is_free = {}, 'constraint' in settings
    for value in (1.5, 1.0):
        for alpha in alphas(model):
            alpha.data.fill_(value)
        outs[value] = model.eval()(x)
        assert {alpha.item() for alpha in alphas(model)} == {value}
        assert_close(model.train()(x), outs[value], rtol=0, atol=0)
        assert {alpha.item() for alpha in alphas(model)} == {value if is_free else 1.0}
    assert all(map(torch.equal, outs[1.5], outs[1.0])) != is_free


@pytest.mark.integration
def test_compiles_in_training():
    model = vit(plugs=residual(), arch=VIT_ARCH | dict(num_layers=2)).train()
    x = images(32, 40, dtype=torch.float32)
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    alphas(model)[0].data.fill_(1.5)
    assert_close(compiled(x), model(x))
    assert alphas(model)[0].item() == 1.0


def test_low_memory_is_chosen_by_the_number_of_tokens():
    blend = vit(plugs=residual()).plugged_blocks()[1].plugs.bind()
    assert not blend.widens(Site(GlobalLayout(44, 46, 1))) and blend.widens(Site(GlobalLayout(44, 47, 1)))
    never = vit(plugs=residual(low_memory=False)).plugged_blocks()[1].plugs.bind()
    assert not never.widens(Site(GlobalLayout(1000, 1000)))
    moved = swin(plugs=residual()).plugged_blocks()[1].plugs.bind()
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
