"""Checkpoints of timm and OpenMMLab compute here what they compute there."""

import re
from functools import partial

import pytest
import timm
import torch
from cases import TIMM_RELPOS, images, randomize, swin, vit
from mmengine.registry import DefaultScope
from mmpretrain.models import DistilledVisionTransformer as MMPretrainDistilled
from mmpretrain.registry import MODELS
from mmseg.models.backbones.swin import SwinTransformer as MMSegSwin
from mmseg.models.backbones.vit import VisionTransformer as MMSegViT
from timm.layers.attention import Attention as TimmAttention
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.mlp_mixer import MlpMixer
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer as TimmSwin
from timm.models.swin_transformer_v2 import SwinTransformerV2

from vitplug.backbones import DistilledVisionTransformer, VisionTransformer
from vitplug.checkpoints import convert, load_pretrained, recognise
from vitplug.checkpoints.formats import is_derived, take_own_names


class Gated(TimmAttention):
    def __init__(self, *args, **settings):
        super().__init__(*args, **settings, gated=True)


def timm_vit(name, **settings):
    small = dict(embed_dim=24, depth=3, num_heads=3, img_size=32, patch_size=8, num_classes=5)
    return partial(timm.create_model, name, **small, **settings)


def timm_swin(kind):
    sizes = dict(embed_dim=12, depths=(2, 2, 2), num_heads=(2, 4, 4), window_size=4)
    return partial(kind, img_size=64, num_classes=5, **sizes)


def timm_mvit(expand_attn=True, **settings):
    sizes = dict(depths=(1, 2, 1), embed_dim=8, num_heads=1, stride_q=((1, 1), (2, 2), (2, 2)))
    return MultiScaleVit(
        MultiScaleVitCfg(expand_attn=expand_attn, **sizes, **settings), img_size=(32, 32), num_classes=5
    )


def timm_pit(distilled=False):
    sizes = dict(img_size=32, patch_size=8, stride=4, base_dims=(8, 8, 8), depth=(1, 2, 1), heads=(1, 2, 4))
    return PoolingVisionTransformer(**sizes, mlp_ratio=4, num_classes=5, distilled=distilled)


def timm_mixer():
    sizes = dict(num_blocks=3, embed_dim=24, mlp_ratio=(10 / 24, 40 / 24))
    return MlpMixer(num_classes=5, img_size=32, patch_size=8, **sizes)


ARCH = dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=96)
VIT = dict(type='vitplug.VisionTransformer', arch=ARCH, img_size=32, patch_size=8)
DISTILLED = {**VIT, 'type': 'vitplug.DistilledVisionTransformer'}
GAP = dict(with_cls_token=False, layer_scale_init_value=1e-5, out_type='avg_featmap', final_norm=False)
ROTARY = dict(VIT, **GAP, use_abs_pos_embed=False, rotary='eva02', num_storage_tokens=1)
PAIRS = {**VIT, **GAP, 'num_storage_tokens': 1, 'plugs': 'diff', 'arch': {**ARCH, 'num_heads': 6}}
SWIN = dict(
    type='vitplug.SwinTransformer',
    arch=dict(embed_dims=12, depths=[2, 2, 2], num_heads=[2, 4, 4]),
    img_size=64,
    window_size=4,
    out_indices=(2,),
)
SWIN_V2 = {**SWIN, 'type': 'vitplug.SwinTransformerV2', 'arch': {**SWIN['arch'], 'extra_norm_every_n_blocks': 0}}
MVIT_ARCH = dict(embed_dims=8, num_layers=4, num_heads=1, downscale_indices=[1, 3])
MVIT = dict(type='vitplug.MViT', arch=MVIT_ARCH, img_size=32)
MIXER = dict(
    type='vitplug.MlpMixer',
    arch=dict(embed_dims=24, num_layers=3, tokens_mlp_dims=10, channels_mlp_dims=40),
    img_size=32,
    patch_size=8,
    norm_cfg=dict(type='LN', eps=1e-6),
)
PIT_ARCH = dict(embed_dims=[8, 16, 32], depths=[1, 2, 1], num_heads=[1, 2, 4], patch_size=8, stride=4)
PIT = dict(type='vitplug.PoolingVisionTransformer', arch=PIT_ARCH, img_size=32)
VIT_HEAD, LINEAR, DEIT = 'VisionTransformerClsHead', 'LinearClsHead', 'DeiTClsHead'
ROPE = dict(VIT, layer_scale_init_value=1e-5, use_abs_pos_embed=False)
# timm's model, vitplug's backbone, mmpretrain's head.
TIMM = {
    'deit': (timm_vit('deit_small_patch16_224'), VIT, VIT_HEAD),
    'deit, distilled': (timm_vit('deit_small_distilled_patch16_224'), DISTILLED, DEIT),
    # Its position table has no entry for the class token.
    'deit3': (timm_vit('deit3_small_patch16_224'), dict(VIT, layer_scale_init_value=1e-6), VIT_HEAD),
    'clip': (timm_vit('vit_base_patch16_clip_224'), dict(VIT, pre_norm=True, norm_cfg=dict(type='LN')), VIT_HEAD),
    'relpos': (timm_vit('vit_relpos_small_patch16_224'), dict(VIT, **TIMM_RELPOS, plugs='rel-pos-mlp'), LINEAR),
    'gated': (timm_vit('vit_small_patch16_224', attn_layer=Gated), dict(VIT, plugs='gate'), VIT_HEAD),
    'reg4': (timm_vit('vit_little_patch16_reg4_gap_256', mlp_ratio=4), dict(VIT, **GAP, num_storage_tokens=4), LINEAR),
    'rope, reg1': (timm_vit('vit_medium_patch16_rope_reg1_gap_256', mlp_ratio=4), ROTARY, LINEAR),
    'rope, reg1, no bias': (
        timm_vit('vit_mediumd_patch16_rope_reg1_gap_256', mlp_ratio=4),
        dict(ROTARY, qkv_bias=False),
        LINEAR,
    ),
    'differential': (timm_vit('vit_dlittle_patch16_reg1_gap_256', mlp_ratio=4), PAIRS, LINEAR),
    'axial': (timm_vit('vit_small_patch16_rope_224'), dict(ROPE, plugs='rope'), VIT_HEAD),
    'mixed': (timm_vit('vit_small_patch16_rope_mixed_224'), dict(ROPE, plugs="rope(mode='mixed')"), VIT_HEAD),
    'axial, table': (
        timm_vit('vit_small_patch16_rope_ape_224'),
        dict(ROPE, plugs='rope', use_abs_pos_embed=True),
        VIT_HEAD,
    ),
    'swin': (timm_swin(TimmSwin), SWIN, LINEAR),
    'swin v2': (timm_swin(SwinTransformerV2), SWIN_V2, LINEAR),
    'mvit': (timm_mvit, MVIT, LINEAR),
    'mvit, in mlp': (partial(timm_mvit, False), dict(MVIT, dim_mul_in_attention=False), LINEAR),
    'mvit, class token': (
        partial(timm_mvit, False, use_cls_token=True, use_abs_pos=True),
        dict(MVIT, dim_mul_in_attention=False, use_abs_pos_embed=True, with_cls_token=True, out_type='cls_token'),
        LINEAR,
    ),
    'pit': (timm_pit, PIT, VIT_HEAD),
    'pit, distilled': (partial(timm_pit, True), dict(PIT, distilled=True), DEIT),
    'mixer': (timm_mixer, MIXER, LINEAR),
}


def random_timm(case):
    return randomize(TIMM[case][0]().double()).eval()


def classifier(backbone, head, in_channels):
    head = dict(type=head, in_channels=in_channels, num_classes=5)
    neck = dict(type='GlobalAveragePooling', dim=1 if 'Mixer' in backbone['type'] else 2)
    has_maps = 'with_cls_token' not in backbone and any(name in backbone['type'] for name in ('Swin', 'MViT', 'Mixer'))
    cfg = dict(type='ImageClassifier', backbone=backbone, neck=neck if has_maps else None, head=head)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg).double()
    model.eval()  # mmpretrain's returns nothing
    return model


@torch.no_grad()
def assert_scores(ours, theirs, side):
    """Both libraries compute the logarithms of Swin V2's offsets, and timm rotary positions, in single precision."""
    x = images(side, side)
    expected = theirs(x)
    assert (ours.head(ours.extract_feat(x)) - expected).abs().max() <= 1e-5 * expected.abs().max()


def assert_same_bits(got, expected):
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        assert got[key].dtype == value.dtype and torch.equal(got[key], value), key


def stock_state(model):
    return {key: value for key, value in model.state_dict().items() if not is_derived(key)}


@pytest.mark.parametrize('case', TIMM)
def test_timm(case, tmp_path):
    theirs, (_, backbone, head) = random_timm(case), TIMM[case]
    torch.save(theirs.state_dict(), tmp_path / 'timm.pth')
    ours = classifier(backbone, head, theirs.num_features)
    coverage = load_pretrained(ours, tmp_path / 'timm.pth')
    assert 'timm ' in coverage.source
    assert [coverage.missing, coverage.plugs, coverage.unused] == [[]] * 3
    assert_scores(ours, theirs, backbone['img_size'])


def test_refusals_of_rotary_positions(tmp_path):
    for case in ('axial', 'mixed'):
        torch.save(random_timm(case).state_dict(), tmp_path / f'{case}.pth')
        with pytest.raises(ValueError, match=r"another network: .*plugs=\[dict\(type='RotaryPosition'\)\]"):
            load_pretrained(MODELS.build(ROPE), tmp_path / f'{case}.pth')


# --- the names of the authors ---


def moved_merging(state):
    """Swin's release has the patch merging in the stage before, and another name of the classifier."""
    state = {key.replace('head.fc.', 'head.'): value for key, value in state.items()}
    for stage in (1, 2):
        for part in ('norm.weight', 'norm.bias', 'reduction.weight'):
            state[f'layers.{stage - 1}.downsample.{part}'] = state.pop(f'layers.{stage}.downsample.{part}')
    return state


def counted_poolings(state):
    """PiT's authors count the poolings by themselves."""
    return {re.sub(r'transformers\.(\d)\.pool', lambda m: f'pools.{int(m[1]) - 1}', k): v for k, v in state.items()}


ORIGINAL = {
    'original Swin': ('swin', moved_merging, {'layers.0.blocks.1.attn_mask': torch.zeros(4, 16, 16)}),
    'original Swin V2': ('swin v2', moved_merging, {'layers.0.blocks.0.attn.relative_coords_table': torch.zeros(1, 7)}),
    'original or timm PiT': ('pit', counted_poolings, {}),
}


@pytest.mark.parametrize('name', ORIGINAL)
def test_names_of_the_authors(name):
    case, rename, tables = ORIGINAL[name]
    stock = stock_state(random_timm(case))
    converted, known, left_out = convert(rename(stock) | tables)
    assert known.name == name and left_out == [*tables]
    assert_same_bits(converted, convert(stock).state)


# --- OpenMMLab ---

DENSE_SWIN = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4), strides=(4, 2), pretrain_img_size=32)
DENSE_SWIN |= dict(window_size=4, out_indices=(0, 1), drop_path_rate=0.0)
MMSEG_VIT = dict(img_size=32, patch_size=8, embed_dims=24, num_layers=3, num_heads=3, out_indices=(0, 2))
MMSEG_VIT |= dict(norm_cfg=dict(type='LN', eps=1e-6))
SMALL = dict(img_size=32, patch_size=8)
# Backbones of a library, and vitplug's. mmpretrain's Swin and ViT have the names of vitplug's own.
LIBRARIES = {
    'mmseg Swin': (lambda: MMSegSwin(**DENSE_SWIN), partial(swin, pad_small_map=True)),
    'mmpretrain DeiT': (lambda: MMPretrainDistilled(ARCH, **SMALL), lambda: DistilledVisionTransformer(ARCH, **SMALL)),
    'mmseg ViT, biases': (
        lambda: MMSegViT(**MMSEG_VIT, final_norm=True, patch_bias=True),
        lambda: VisionTransformer(**MMSEG_VIT, final_norm=True, patch_bias=True),
    ),
}


@pytest.mark.parametrize('library', LIBRARIES)
def test_openmmlab(library, tmp_path):
    """In the file of a distributed training of a whole model."""
    build, host = LIBRARIES[library]
    theirs, ours = randomize(build()), host().eval()
    theirs.eval()
    state = {f'module.backbone.{key}': value for key, value in theirs.state_dict().items()}
    torch.save(dict(state_dict={**state, 'module.decode_head.conv.weight': torch.zeros(3)}), tmp_path / 'weights.pth')
    coverage = load_pretrained(ours, tmp_path / 'weights.pth')
    assert [coverage.missing, coverage.resized] == [[]] * 2 and coverage.unused == ['decode_head.conv.weight']
    x = images(32, 32, dtype=torch.float32)
    with torch.no_grad():
        for got, expected in zip(flat(ours(x)), flat(theirs(x)), strict=True):
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


def flat(outputs):
    """DeiT's two tokens are a tuple in a tuple."""
    return [tensor for output in outputs for tensor in (output if isinstance(output, tuple) else (output,))]


def test_last_norm_of_early_files():
    state = {re.sub('^norm1', 'norm', key): value for key, value in swin(out_indices=(1,)).state_dict().items()}
    state['decode_head.layers.0.attn.attn.in_proj_weight'] = torch.zeros(1)  # of mmseg's Segmenter, no network
    assert 'backbone.norm1.weight' in convert(state).state
    whole = {f'backbone.{key}': value for key, value in state.items()}
    take_own_names(whole)
    assert 'backbone.norm1.weight' in whole


def test_modules_of_hugging_face_have_other_names_than_its_files():
    theirs = {'embeddings.cls_token': torch.ones(1, 1, 2), 'encoder.layer.0.layer_scale1.lambda1': torch.ones(2)}
    theirs |= {f'encoder.layer.0.attention.{name}_proj.weight': torch.eye(2) for name in 'qkvo'}
    names = ('cls_token', *(f'layers.0.attn.{name}.weight' for name in ('gamma1', 'qkv', 'proj')))
    assert list(convert(theirs).state) == [f'backbone.{name}' for name in names]


# --- refusals ---


@pytest.mark.parametrize('name', ['core_base_patch16_224', 'lang_large_patch14_448'])
def test_rotations_that_vitplug_has_not(name):
    """Without the refusal, all tensors of some load into the network of a CLIP."""
    theirs = timm.create_model(f'vit_pe_{name}', embed_dim=24, depth=1, num_heads=3)
    with pytest.raises(ValueError, match="names of timm's Perception Encoder, whose rotary positions no tensor shows"):
        convert(theirs.state_dict())


def test_refusals_name_the_family_of_the_file():
    for settings in (dict(num_reg_tokens=4, use_rot_pos_emb=True, swiglu_mlp=True), {}):
        eva = Eva(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, **settings)
        with pytest.raises(ValueError, match='timm EVA without SwiGLU or with registers: vitplug has EVA-02-T, S, B'):
            convert(eva.state_dict())
    for key in ('conv.weight', 'stages.0.blocks.0.attn.meta_mlp.fc1.weight', 'blocks.0.attn.q.weight'):
        with pytest.raises(ValueError, match=rf'the keys \({re.escape(key)}\) match no known network: expected .*timm'):
            recognise({key: torch.zeros(1)})


def test_beit_has_no_host():
    beit = Beit(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, use_rel_pos_bias=True, init_values=0.1)
    with pytest.raises(ValueError, match=r'relative positions of a BEiT, .* no host; vitplug\.plug_in takes a model'):
        convert(beit.state_dict())
    with pytest.raises(ValueError, match='relative positions of a BEiT'):
        convert({'beit.layers.0.relative_position_bias.relative_position_bias_table': torch.ones(2)})


def test_a_prefix_that_no_key_has():
    with pytest.raises(ValueError, match=r"prefix='pupil\.': no key begins with it; the keys are cls_token"):
        convert(vit().state_dict(), prefix='pupil')
