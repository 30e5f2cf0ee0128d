"""ReMViTv2 against plain steps of its equations; `checkpoints/test_formats.py` has timm's MViTv2."""

import pytest
import torch
from attention_oracle import assert_same, gradients
from cases import MVIT_ARCH, images, mvit, randomize
from mvit_oracle import Oracle
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.backbones import MViT

CLOSE = dict(rtol=1e-9, atol=1e-9)


def test_norms_of_the_outputs_change_the_outputs_alone():
    """As in the official detector. mmpretrain's blocks get the normed tokens where several scales are asked for."""
    one, all_scales = mvit(out_scales=-1).double().eval(), mvit().double().eval()
    randomize(all_scales)
    one.load_state_dict(all_scales.state_dict(), strict=False)
    x = images(40, 56)
    assert torch.equal(one(x)[0], all_scales(x)[-1])
    outs, found = all_scales.forward_intermediates(x, 'block')
    for stage, (last, out) in enumerate(zip((0, 2, 3), outs, strict=True)):
        normed = getattr(all_scales, f'norm{stage}')(found['block'][last])
        assert torch.equal(out, normed.transpose(1, 2).unflatten(2, out.shape[2:]))


# --- residual attention, as in the official code ---


# Windows of 8, 4 and 2 tokens on maps of 12 x 18, 6 x 9 and 3 x 5; blocks 0, 1, 3 and 4 have them.
WINDOWED = dict(arch=MVIT_ARCH | dict(num_layers=6, downscale_indices=[1, 3]), window_size=8)
WINDOWED_SIDES = [(8, 2), (4, 4), None, (2, 4), (2, 2), None]
# Settings of the model; heads and strides of queries and keys of its blocks; further settings of the oracle; the image.
GLOBAL = ([2, 4, 4, 8], [(1, 4), (2, 2), (1, 2), (2, 1)])
IN_WINDOWS = ([2, 4, 4, 8, 8, 8], [(1, 4), (2, 2), (1, 4), (2, 1), (1, 1), (1, 1)])
ORACLES = {
    'global': (dict(), GLOBAL, dict(), (64, 96)),
    'wider in the MLP': (dict(dim_mul_in_attention=False), GLOBAL, dict(dim_mul_in_attention=False), (64, 96)),
    'windows': (WINDOWED, IN_WINDOWS, dict(windows=WINDOWED_SIDES), (48, 72)),
    'shown padding': (
        dict(WINDOWED, shows_padding=True),
        IN_WINDOWS,
        dict(windows=WINDOWED_SIDES, shows_padding=True),
        (48, 72),
    ),
}


@pytest.mark.parametrize('case', ORACLES)
@pytest.mark.parametrize('alpha', [None, 0.3])
def test_official_residual_attention(alpha, case):
    """T_l = alpha S_l + (1 - alpha) resize(T_{l-1}) + E_l: tokens of all blocks, gradients of alpha and of all weights.

    In windows one at a time, where scores pass from windows to windows and from global to global attention.
    """
    settings, (heads, strides), of_oracle, size = ORACLES[case]
    plug = dict(type='ResidualAttention', bias_mode='after_carried', alpha=alpha)
    plug |= dict(window_align='parity') if 'windows' in of_oracle else {}
    model = randomize(mvit(plugs=[plug] if alpha else [], **settings)).double().eval()
    assert [model.strides(index) for index in range(len(heads))] == strides
    own = {name: t for name, t in model.state_dict(keep_vars=True).items() if 'residual_alpha' not in name}
    learned = [t for name, t in model.named_parameters() if 'residual_alpha' in name]
    for parameter in learned:
        parameter.data.fill_(alpha)
    x = images(*size)
    expected = [block.flatten(1, 2) for block in Oracle(own, heads, strides, *learned, **of_oracle)(x)]
    leaves = [*(t for name, t in own.items() if not name.startswith('norm')), *learned]
    for fused in (True, False):
        with fused_attention(fused):
            _, found = model.forward_intermediates(x, 'block')
        assert_close(list(found['block'].values()), expected, **CLOSE)
        assert_same([found['block'][len(heads) - 1]], expected[-1:], leaves, rtol=1e-8, atol=1e-8)
    assert len(learned) == (alpha is not None) and all(grad.any() for grad in gradients(expected[-1:], learned))


# --- windows ---


def test_windows_are_those_of_the_official_detector():
    """detectron2's order: the last blocks of the stages but the first are global; others have windows of 56, 28, 14, 7.

    The first block of a stage has the windows of the stage before, of which its queries are pooled.
    """
    with torch.device('meta'):
        model = MViT(arch='tiny', window_size=56)
    sides = [(56, 14), (28, 28), None, (14, 28), (14, 14), (14, 14), (14, 14), None, (7, 14), None]
    assert model.windows == sides
    keys = [4, 2, 4, 1, 1, 1, 1, 2, 1, 1]
    assert [model.strides(i) for i in range(10)] == [(2 if i in (1, 3, 8) else 1, keys[i]) for i in range(10)]


# --- checkpoints ---


def test_tables_of_another_size_are_resized():
    small, large = randomize(mvit(use_abs_pos_embed=True)), mvit(img_size=64, use_abs_pos_embed=True)
    large.load_state_dict(small.state_dict())
    assert large.blocks[0].attn.rel_pos_h.shape == (31, 6)
    assert_close(large.blocks[0].attn.rel_pos_h[15], small.blocks[0].attn.rel_pos_h[7])


def test_a_block_that_reuses_a_map_has_no_queries():
    arch, plugs = MVIT_ARCH | dict(num_layers=6), [dict(type='Refiner', share=1, layers=[4, 5])]
    model = mvit(arch=arch, plugs=plugs)
    missing, unexpected = model.load_state_dict(mvit(arch=arch).state_dict(), strict=False)
    assert not unexpected and all('plugs' in key for key in missing)
    model(images(32, 40, dtype=torch.float32))[-1].sum().backward()
    assert model.blocks[5].attn.pool_q is None and model.blocks[5].attn.rel_pos_h is None
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == ['norm0.weight', 'norm0.bias', 'norm1.weight', 'norm1.bias']
