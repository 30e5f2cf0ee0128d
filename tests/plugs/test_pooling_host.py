"""Plugs on a host whose queries and keys lie on different grids, and whose stages have other heads and widths."""

import pytest
import torch
from attention.test_changing_grids import heads_oracle, resize_oracle
from cases import PLUGS, images, randomize
from pooling_host import DIMS, SPECS, PoolingHost
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, fused_attention
from vitplug.hosting import mark_padding
from vitplug.plugs import BLOCK_SOCKETS, BlockShape, LayerPlan, PlugSet, Refiner, ResidualAttention

SIZES = [(32, 40), (28, 52), (45, 33)]
BAD_OFFSETS = r'block 0 has queries on 8x10 and keys on 2x3, .* leave the block out by layers=\[...\], or use Gaussian'
REFUSED = {
    'rel-pos-bias': f'RelPosBias: {BAD_OFFSETS}',
    'rel-pos-mlp-and-gab': f'RelPosMlp: {BAD_OFFSETS}',
    'residual-low-memory-carried': BAD_OFFSETS,
    'residual-low-memory': 'low_memory=True cannot hand the scores of block 0 on to block 1, .* other windows, grids',
    'residual-low-memory-bias': 'low_memory=True cannot hand the scores of block 0 on to block 1',
    'residual-parity': "stage_transition='flat_nearest' resizes windows, and blocks 1 and 2, of two stages",
    'value-residual': r'the values of block 1 lie on a grid of \(8, 10\), those of block 0 on one of \(2, 3\)',
    'neutreno': 'NeuTRENO: block 0 has no value of its own for each output: its keys are pooled',
    'locality': 'LocalitySelfAttention: the keys of block 0 are not its queries',
    'broad-qk-only': r'layers=\[0, 3\] has no block of the last stage',
}
TAKEN = [name for name in PLUGS if name not in REFUSED]


def build(plugs, **settings):
    return randomize(PoolingHost(plugs, **settings)).double().eval()


def loss_of(outs):
    return sum((out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).sum() for out in outs)


def step(model, x):
    outs = model(x)
    model.zero_grad()
    loss_of(outs).backward()
    return outs, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def residual(**settings):
    return [dict(type='ResidualAttention', **settings)]


@pytest.mark.parametrize('has_cls', [False, True])
@pytest.mark.parametrize('name', TAKEN)
def test_all_plugs_that_have_a_rule(name, has_cls):
    """Fused and plain are twins, checkpointing changes nothing, every parameter learns, intermediates are there."""
    model, x = build(PLUGS[name], has_cls=has_cls), images(28, 52)
    outs, grads = expected = step(model, x)
    assert all(out.isfinite().all() for out in outs) and len(grads) == len(list(model.parameters()))
    with fused_attention(False):
        assert_close(step(model, x), expected)
    for block in model.blocks:
        block.with_cp = True
    assert_close(step(model, x), expected)
    marked = mark_padding(x, [(28, 52), (12, 24)])
    found_outs, found = model.forward_intermediates(marked, ('q', 'k', 'v', 'probs', 'site'))
    assert_close(found_outs, model(marked))
    for index in range(len(SPECS)):
        site = found['site'][index]
        queries, keys = site.pairs.queries.num_tokens, site.pairs.keys.num_tokens
        assert found['probs'][index].shape[-2:] == (queries, keys)
        assert found['q'][index].shape[-2] == queries and found['k'][index].shape[-2] == keys
        assert site.valid.shape == (2, queries) and site.valid_keys.shape == (2, 1, keys)


@pytest.mark.parametrize('name', REFUSED)
def test_plugs_without_a_rule_are_refused(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        PoolingHost(PLUGS[name])


# --- residual attention ---


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('has_cls', [False, True])
@pytest.mark.parametrize('heads', ['mean', 'repeat'])
def test_residual_attention_follows_the_recursion(has_cls, size, heads):
    """At the configured image size and at others."""
    model = build([*residual(head_transition=heads), dict(type='GaussianAttentionBias')], has_cls=has_cls)
    (alpha,) = (p for name, p in model.named_parameters() if 'residual_alpha' in name)
    _, found = model.forward_intermediates(images(*size), ('scores', 'bias', 'logits', 'site'))
    handed = last = None
    for index, spec in enumerate(SPECS):
        own, site = found['scores'][index], found['site'][index]
        if handed is not None:
            own = alpha * own + (1 - alpha) * heads_oracle(resize_oracle(handed, last, site), spec.heads, heads)
        assert_close(found['logits'][index], own + found['bias'][index])
        handed, last = own, site


def plans_on(*sites, heads=(1, 1)):
    return [LayerPlan(i, len(sites), 4, BlockShape.stock(4, heads[i], 8), site) for i, site in enumerate(sites)]


def test_scores_of_other_prefix_tokens_are_not_handed_on():
    sites = [Site(GlobalLayout(2, 3, 1)), Site(GlobalLayout(2, 3))]
    with pytest.raises(ValueError, match='changes nothing'):
        PlugSet([ResidualAttention()], 2).build(plans_on(*sites))


def test_sums_of_scores_need_equal_grids():
    """Scores are written out as a sum from many tokens on where all blocks have the same grids, and only there."""
    grid, coarse = GlobalLayout(50, 50), GlobalLayout(25, 25)
    for sites, written_out in (((Site(grid, coarse),) * 2, True), ((Site(grid, coarse), Site(grid)), False)):
        _, layers = PlugSet([ResidualAttention()], 2).build(plans_on(*sites))
        assert layers[1].widens(sites[1]) == written_out


# --- other plugs ---


def test_learned_scales_have_the_width_of_their_tokens():
    """Of the width in which the block's branch ends, or of the MLP's hidden layer."""
    everywhere = ['msa', 'mlp_front', 'mlp_mid', 'mlp_end']
    model = PoolingHost([dict(type='ContextBroadcast', scaled=True, position=everywhere)])
    widths = [[block.plugs['cb'][socket].cb_scale.numel() for socket in everywhere] for block in model.blocks]
    assert widths == [[spec.dims, spec.dims, 2 * spec.dims, spec.out_dims] for spec in SPECS]
    assert [spec.out_dims for spec in SPECS] != [DIMS[spec.stage] for spec in SPECS]


def test_relative_sigma_is_that_of_the_finer_grid():
    """At the configured size both kinds of sigma are the same, though keys may be finer than queries."""
    settings = dict(type='GaussianAttentionBias', sigma=1.5)
    models = [PoolingHost([dict(settings, coord=coord)]) for coord in ('token', 'relative')]
    for index in range(len(SPECS)):
        found = [m.forward_intermediates(images(32, 40).float(), 'bias')[1]['bias'][index] for m in models]
        assert_close(*found)


def test_maps_are_not_shared_across_grids_and_stages():
    for layers, source, block in (([0, 1], 0, 1), ([1, 2], 1, 2), ([2, 3], 2, 3)):
        with pytest.raises(ValueError, match=f'block {block} cannot reuse the map of block {source}: its tokens'):
            PoolingHost([dict(type='Refiner', share=1, layers=layers)])
    sites = [Site(GlobalLayout(2, 3))] * 2
    plans = [LayerPlan(i, 2, 4, BlockShape.stock(4, 1, 8), sites[i], stage=i, num_stages=2) for i in range(2)]
    plug = Refiner(share=1)
    plans = [p.__class__(**{**vars(p), 'shape': plug.shape_block(p.shape, p.index, 2)}) for p in plans]
    with pytest.raises(ValueError, match='block 1 cannot reuse the map of block 0: its tokens'):
        PlugSet([plug], 2).build(plans)


def test_bottleneck_counts_keys():
    """Probabilities are of the size of one over their number."""
    model = PoolingHost([dict(type='Refiner', mode='mbconv', init='default')], has_cls=True)
    counts = [block.plugs['refiner']['map'].reference_tokens.item() for block in model.blocks]
    assert counts == [1 + 2 * 3, 1 + 8 * 10, 1 + 4 * 5, 1 + 2 * 3, 1 + 4 * 5]


def without(*sockets):
    return tuple(socket for socket in BLOCK_SOCKETS if socket not in sockets)


def test_broad_attention_takes_the_blocks_that_offer_q_k_and_v():
    """All and upper mean those; blocks that are named must offer them."""
    model = PoolingHost([dict(type='BroadAttention')], sockets={0: without('tap'), 1: without('tap')})
    assert [bool(block.plugs.at('tap')) for block in model.blocks] == [False, False, False, True, True]
    message = (
        r"broad takes the socket 'tap', which block 1 does not offer; .*; layers=\[2, 3, 4\] are the blocks that do"
    )
    with pytest.raises(ValueError, match=message):
        PoolingHost([dict(type='BroadAttention', layers=[1, 4])], sockets={0: without('tap'), 1: without('tap')})


def test_the_blocks_to_take_instead_are_named():
    lacking = {0: without('bias', 'scores'), 2: without('scores')}
    message = r"gab takes the socket 'bias', which block 0 does not .*; layers=\[1, 2, 3, 4\] are the blocks that do$"
    with pytest.raises(ValueError, match=message):
        PoolingHost([dict(type='GaussianAttentionBias')], sockets=lacking)
    with pytest.raises(ValueError, match=r'layers=\[1, 3, 4\] are the blocks that do$'):
        PoolingHost(residual(), sockets=lacking)
