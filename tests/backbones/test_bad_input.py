"""Every refusal names the argument, its value and what is allowed."""

import pytest
import torch
from cases import SWIN_ARCH, VIT_ARCH, images, swin, vit

BAD_VIT = {
    'unknown arch': (dict(arch='deit-huge'), r"arch='deit-huge': unknown; choose from .*deit-tiny"),
    'arch lacks keys': (dict(arch=dict(embed_dims=8)), r'arch=.*expected a name or a dict with the keys .*num_heads'),
    'arch no name': (dict(arch=7), r'arch=7: expected a name or a dict'),
    'heads': (dict(arch={**VIT_ARCH, 'num_heads': 5}), r'embed_dims=24 is no multiple of num_heads=5'),
    'out_type': (dict(out_type='tokens'), r"out_type='tokens': expected one of .*featmap"),
    'no class token': (
        dict(out_type='cls_token', with_cls_token=False),
        r"out_type='cls_token' needs with_cls_token=True",
    ),
    'out_indices': (dict(out_indices=[0, 4]), r'out_indices=\[0, 4\]: \[4\] outside; .* 0 to 3'),
    'frozen': (dict(frozen='plugs'), r"frozen='plugs': expected 'host', which freezes all but the plugs, or None"),
    'frozen twice': (dict(frozen='host', frozen_stages=1), r"frozen_stages=1 beside frozen='host': .*keep one"),
    'frozen_stages': (dict(frozen_stages=5), r'frozen_stages=5: expected an integer from -1 \(none\) to 4'),
    'layer_cfgs': (dict(layer_cfgs=[dict()]), r'layer_cfgs has 1 entries: expected one dict, or a list of 4'),
    'ffn_type': (
        dict(layer_cfgs=dict(ffn_type='moe')),
        r"ffn_type='moe': expected one of \['origin', 'swiglu_fused', 'swiglu'\]",
    ),
    'settings of an MLP that SwiGLU lacks': (
        dict(layer_cfgs=dict(ffn_type='swiglu', num_fcs=3)),
        r"num_fcs=3: ffn_type='swiglu' has no such setting: leave it away",
    ),
    'dropout of SwiGLU': (dict(drop_rate=0.1, layer_cfgs=dict(ffn_type='swiglu_fused')), r'drop_rate=0\.1: ffn_type='),
    'rate of attention': (dict(layer_cfgs=dict(attn_drop_rate=3.0)), r'attn_drop_rate=3\.0: expected a number'),
    'patch_size': (dict(patch_size=0), r'img_size=\(32, 40\), patch size 0, .* expected positive integers'),
    'img_size': (dict(img_size='224'), r"img_size='224'.* expected positive integers"),
    'image below one patch': (
        dict(img_size=(6, 40), patch_cfg=dict(padding=0)),
        r"image size \(6, 40\) is smaller than the patch size \(8, 8\): .*padding='corner'",
    ),
}
BAD_SWIN = {
    'unknown arch': (dict(arch='huge'), r"arch='huge': unknown; choose from .*tiny"),
    'heads': (dict(arch={**SWIN_ARCH, 'num_heads': [5, 4]}), r'embed_dims=12 is no multiple of num_heads=5'),
    'out_indices': (dict(out_indices=(2,)), r'out_indices=\[2\]: \[2\] outside; .* 0 to 1'),
    'frozen_stages': (dict(frozen_stages=2), r'frozen_stages=2: expected an integer from -1 \(none\) to 1'),
    'stage_cfgs': (dict(stage_cfgs=[dict()]), r'stage_cfgs has 1 entries: expected one dict, or a list of 2'),
    'unknown setting of a stage': (dict(stage_cfgs=dict(foo=1)), r"stage_cfgs=\{'foo': 1\} makes no stage: .*'foo'"),
    'interpolation of other tables': (
        dict(use_abs_pos_embed=True, interpolate_mode='geometric'),
        r"interpolate_mode='geometric': expected one of",
    ),
    'shift': (
        dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(shift_size=4)))),
        r'shift_size=4: expected 0 to 3, less than window_size',
    ),
}


@pytest.mark.parametrize('settings, message', BAD_VIT.values(), ids=BAD_VIT)
def test_vit_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        vit(**settings)


@pytest.mark.parametrize('settings, message', BAD_SWIN.values(), ids=BAD_SWIN)
def test_swin_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        swin(**settings)


def test_image_smaller_than_a_patch_that_is_not_padded():
    model = vit(patch_cfg=dict(padding=0))
    with pytest.raises(ValueError, match=r'image size \(7, 40\) is smaller than the patch size'):
        model(images(7, 40, dtype=torch.float32))


def test_map_smaller_than_the_window():
    with pytest.raises(
        ValueError, match=r'the feature map \(3, 10\) is smaller than the window \(4\): set pad_small_map'
    ):
        swin()(images(12, 40, dtype=torch.float32))


def test_position_table_of_no_square_grid():
    table = torch.zeros(1, 1 + 14, 24)
    with pytest.raises(ValueError, match=r'pos_embed: the checkpoint has 15 entries, which are no square grid plus 1'):
        vit().load_state_dict({'pos_embed': table}, strict=False)


def test_bias_table_of_no_square_window():
    key = 'stages.0.blocks.0.attn.w_msa.relative_position_bias_table'
    with pytest.raises(
        ValueError, match=r'bias_table: the checkpoint has 15 entries, which belong to no square window'
    ):
        swin().load_state_dict({key: torch.zeros(15, 2)}, strict=False)


def test_unknown_intermediates():
    with pytest.raises(ValueError, match=r"names=\['attention'\]: no such intermediates; choose from .*probs"):
        vit().forward_intermediates(images(32, 40), 'attention')
    with pytest.raises(ValueError, match=r'layers=\[4\]: this backbone has blocks 0 to 3'):
        vit().forward_intermediates(images(32, 40), 'probs', layers=[4])
