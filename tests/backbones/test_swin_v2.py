"""Swin Transformer V2: how it starts, and where plugs act in it."""

import pytest
import torch
from cases import images, randomize, swin_v2

from vitplug.attention import Site


def assert_same(got, expected, tolerance):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_blocks_start_as_the_identity():
    model = swin_v2(out_indices=(0,), norm_cfg=None)
    model.init_weights()
    x = images(32, 32, dtype=torch.float32)
    tokens, hw = model.embed(x)
    assert torch.equal(model(x)[0], tokens.transpose(1, 2).unflatten(2, hw))
    model.init_weights()
    assert not model.stages[0].blocks[0].norm1.weight.any()


def test_stochastic_depth_drops_a_branch_after_its_norm():
    """mmpretrain drops it before, and its norm then adds a bias to the dropped tokens, and undoes the scaling."""
    block = randomize(swin_v2(drop_path_rate=0.9, norm_cfg=None)).stages[1].blocks[1].train()
    x = torch.randn(64, 16, 24)
    site = Site(block.attn.layout((4, 4)))
    torch.manual_seed(0)
    with torch.no_grad():
        branch = block.norm1(block.attn(x, site, block.plugs, {}, None)[0])
        change = block(x, site, {})[0] - x
    nothing, attention_alone = (
        torch.isclose(change, expected, rtol=1e-4, atol=1e-4).flatten(1).all(1)
        for expected in (torch.zeros_like(x), branch / 0.1)
    )
    assert 40 < nothing.sum() < 64 and attention_alone.sum() > 1


@pytest.mark.parametrize('position', ['msa', 'mlp_end'])
def test_context_is_broadcast_before_the_norm_of_the_branch(position):
    model = randomize(swin_v2(plugs=[dict(type='ContextBroadcast', position=position)])).double().eval()
    block, x = model.stages[0].blocks[0], torch.randn(2, 64, 12, dtype=torch.float64)
    seen = {}
    block.plugs['cb'][position].register_forward_hook(lambda module, inputs, out: seen.update(x=inputs[0], out=out))
    norm = block.norm1 if position == 'msa' else block.norm2
    norm.register_forward_pre_hook(lambda module, inputs: seen.update(normed=inputs[0]))
    block(x, Site(model.layout(0, (8, 8))), {})
    assert_same(seen['out'], (seen['x'] + seen['x'].mean(1, keepdim=True)) / 2, 1e-12)
    assert torch.equal(seen['normed'], seen['out'])


@pytest.mark.parametrize('mode', ['replace', 'append'])
def test_stock_checkpoint_fits_other_heads(mode):
    """Of the removed head everything but v is left out; the other heads keep their attention."""
    plain = randomize(swin_v2()).double().eval()
    plugged = swin_v2(plugs=[dict(type='UniformHead', mode=mode)]).double().eval()
    keys = plugged.load_state_dict(plain.state_dict(), strict=False)
    assert not keys.missing_keys and not keys.unexpected_keys
    x = images(32, 32)
    expected, got = (m.forward_intermediates(x, ('probs', 'v'), layers=[0])[1] for m in (plain, plugged))
    heads = 1 if mode == 'replace' else 2
    assert_same(got['probs'][0], expected['probs'][0][:, :, :heads], 1e-12)
    assert_same(got['v'][0][:, :, :2], expected['v'][0], 1e-12)


def test_the_place_of_the_norm_of_a_merging_is_an_argument():
    model = swin_v2(stage_cfgs=dict(downsample_cfg=dict(use_post_norm=True)))  # as mmpretrain's class needs it
    assert model.state_dict().keys() == swin_v2().state_dict().keys()
    with pytest.raises(ValueError, match='use_post_norm=False: Swin V2 normalises after the reduction'):
        swin_v2(stage_cfgs=dict(downsample_cfg=dict(use_post_norm=False)))


def test_checkpoint_of_other_windows_keeps_its_scale():
    """A bias of equal offsets is equal where the windows of the pretraining are named."""
    source = randomize(swin_v2(window_size=2)).double()
    ours = swin_v2(window_size=4, pretrained_window_sizes=2).double()
    ours.load_state_dict(source.state_dict())
    small, large = (
        m.plugged_blocks()[0].attn.w_msa.biases(Site(m.planned_layout(0, (8, 8))))[0].table for m in (source, ours)
    )
    assert_same(large[:, 2:5, 2:5], small, 1e-12)
