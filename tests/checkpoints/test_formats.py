"""Checkpoints of other code compute here what they compute there, and come back bit for bit."""

import re
import warnings

import pytest
import timm
import torch
from cases import TIMM_RELPOS, images, randomize, swin, vit
from mmdet.models.backbones.swin import SwinTransformer as MMDetSwin
from mmengine.registry import DefaultScope
from mmpretrain.models import DistilledVisionTransformer as MMPretrainDistilled
from mmpretrain.models import SwinTransformer as MMPretrainSwin
from mmpretrain.models import VisionTransformer as MMPretrainViT
from mmpretrain.registry import MODELS
from mmseg.models.backbones.swin import SwinTransformer as MMSegSwin
from mmseg.models.backbones.vit import VisionTransformer as MMSegViT
from timm.layers.attention import Attention as TimmAttention
from timm.models.eva import Eva

from vitplug.backbones import DistilledVisionTransformer, VisionTransformer
from vitplug.checkpoints import convert, load_pretrained, recognise, to_vitplug
from vitplug.checkpoints.formats.foundation import HF_DEIT

SMALL_VIT = dict(embed_dim=24, depth=3, num_heads=3, img_size=32, patch_size=8, num_classes=5)
SMALL_ARCH = dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=96)
SMALL_SWIN = dict(embed_dim=12, depths=(2, 2, 2), num_heads=(2, 4, 4), img_size=64, window_size=4, num_classes=5)
VIT = dict(type='vitplug.VisionTransformer', arch=SMALL_ARCH, img_size=32, patch_size=8)
RELPOS = dict(TIMM_RELPOS, plugs=[dict(type='RelPosMlp')])
WITHOUT_CLASS_TOKEN = dict(with_cls_token=False, layer_scale_init_value=1e-5, out_type='avg_featmap', final_norm=False)
SWIN = dict(
    type='vitplug.SwinTransformer',
    arch=dict(embed_dims=12, depths=[2, 2, 2], num_heads=[2, 4, 4]),
    img_size=64,
    window_size=4,
)
VIT_HEAD = dict(type='VisionTransformerClsHead')
LINEAR_HEAD = dict(type='LinearClsHead')


class Gated(TimmAttention):
    def __init__(self, *args, **settings):
        super().__init__(*args, **settings, gated=True)


# timm's model and its settings, vitplug's backbone, mmpretrain's head.
DISTILLED = {**VIT, 'type': 'vitplug.DistilledVisionTransformer'}
LITTLE, GAP = {**SMALL_VIT, 'mlp_ratio': 4}, {**VIT, **WITHOUT_CLASS_TOKEN}
ROTARY = {**GAP, 'use_abs_pos_embed': False, 'rotary': 'eva02'}
PAIRS = {**GAP, 'num_storage_tokens': 1, 'plugs': 'diff', 'arch': {**SMALL_ARCH, 'num_heads': 6}}
PRE_NORM = {**VIT, 'pre_norm': True, 'norm_cfg': dict(type='LN')}
TIMM = {
    'deit_small_patch16_224': (SMALL_VIT, VIT, VIT_HEAD),
    'deit_small_distilled_patch16_224': (SMALL_VIT, DISTILLED, dict(type='DeiTClsHead')),
    # Its position table has no entry for the class token.
    'deit3_small_patch16_224': (SMALL_VIT, {**VIT, 'layer_scale_init_value': 1e-6}, VIT_HEAD),
    'vit_base_patch16_clip_224': (SMALL_VIT, PRE_NORM, VIT_HEAD),
    'vit_relpos_small_patch16_224': (SMALL_VIT, {**VIT, **RELPOS}, LINEAR_HEAD),
    'vit_small_patch16_224': ({**SMALL_VIT, 'attn_layer': Gated}, {**VIT, 'plugs': 'gate'}, VIT_HEAD),
    'vit_little_patch16_reg4_gap_256': (LITTLE, {**GAP, 'num_storage_tokens': 4}, LINEAR_HEAD),
    'vit_medium_patch16_rope_reg1_gap_256': (LITTLE, {**ROTARY, 'num_storage_tokens': 1}, LINEAR_HEAD),
    'vit_mediumd_patch16_rope_reg1_gap_256': (
        LITTLE,
        {**ROTARY, 'num_storage_tokens': 1, 'qkv_bias': False},
        LINEAR_HEAD,
    ),
    'vit_dlittle_patch16_reg1_gap_256': (LITTLE, PAIRS, LINEAR_HEAD),
    'swin_tiny_patch4_window7_224': (SMALL_SWIN, {**SWIN, 'out_indices': (2,)}, LINEAR_HEAD),
}


def random_weights(model):
    randomize(model)
    model.eval()  # mmpretrain's returns nothing
    return model


def timm_model(name, settings):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return random_weights(timm.create_model(name, **settings))


def classifier(backbone, head, in_channels, num_classes, **settings):
    head = {**head, 'in_channels': in_channels, 'num_classes': num_classes}
    neck = dict(type='GlobalAveragePooling') if 'Swin' in backbone['type'] else None
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head, **settings))


def logits(model, x):
    with torch.no_grad():
        return model.head(model.extract_feat(x))


def assert_same_bits(got, expected):
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        assert got[key].dtype == value.dtype and torch.equal(got[key], value), key


@pytest.mark.parametrize('name', TIMM)
def test_timm(name, tmp_path):
    settings, backbone, head = TIMM[name]
    theirs = timm_model(name, settings)
    torch.save(theirs.state_dict(), tmp_path / 'timm.pth')
    init_cfg = dict(type='vitplug.Pretrained', checkpoint=str(tmp_path / 'timm.pth'))
    ours = classifier(backbone, head, theirs.num_features, theirs.num_classes, init_cfg=init_cfg)
    ours.init_weights()
    x = images(backbone['img_size'], backbone['img_size'], batch=1, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(x)
    assert (logits(ours.eval(), x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    stock = {key: value for key, value in theirs.state_dict().items() if not key.endswith('relative_position_index')}
    if 'deit3' not in name:  # Its table has got an entry for the class token.
        assert_same_bits(convert(ours.state_dict(), 'timm')[0], stock)
    assert_same_bits(convert(to_vitplug(stock)[0], 'timm')[0], stock)


@pytest.mark.parametrize(
    ('name', 'mode', 'table'),
    [('rope', 'axial', False), ('rope_mixed', 'mixed', False), ('rope_ape', 'axial', True)],
)
def test_rotary_positions_of_timm(name, mode, table, tmp_path):
    theirs = timm_model(f'vit_small_patch16_{name}_224', SMALL_VIT)
    path = tmp_path / 'timm.pth'
    torch.save(theirs.state_dict(), path)
    assert f"mode='{mode}'" in to_vitplug(theirs.state_dict()).notes[0]
    plugs = [dict(type='RotaryPosition', mode=mode)]
    backbone = {**VIT, 'plugs': plugs, 'layer_scale_init_value': 1e-5, 'use_abs_pos_embed': table}
    init_cfg = dict(type='vitplug.Pretrained', checkpoint=str(path))
    ours = classifier(backbone, VIT_HEAD, theirs.num_features, theirs.num_classes, init_cfg=init_cfg)
    ours.init_weights()
    x = images(32, 32, batch=1, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(x)
    assert (logits(ours.eval(), x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    with pytest.raises(ValueError, match=r"another network: .*plugs=\[dict\(type='RotaryPosition'\)\]"):
        load_pretrained(MODELS.build({**backbone, 'plugs': []}), path)


@pytest.mark.parametrize('name', ['core_base_patch16_224', 'lang_large_patch14_448', 'spatial_base_patch16_512'])
def test_rotations_that_vitplug_has_not(name):
    """Without the refusal, all tensors of some load into the network of a CLIP."""
    theirs = timm.create_model(f'vit_pe_{name}', embed_dim=24, depth=1, num_heads=3)
    with pytest.raises(ValueError, match="names of timm's Perception Encoder, whose rotary positions no tensor shows"):
        to_vitplug(theirs.state_dict())


def distilled_of_hugging_face():
    backbone = {**VIT, 'type': 'vitplug.DistilledVisionTransformer', 'out_type': 'raw'}
    state = {f'backbone.{key}': value for key, value in MODELS.build(backbone).state_dict().items()}
    return state, HF_DEIT.from_vitplug(state)


def test_refusals_name_the_family_of_the_file(tmp_path):
    state, theirs = distilled_of_hugging_face()
    assert 'embeddings.distillation_token' in theirs
    back, known, _ = to_vitplug(theirs)
    assert known.name == 'Hugging Face DeiT'
    assert_same_bits(back, state)
    torch.save(theirs, tmp_path / 'deit.pth')
    with pytest.raises(ValueError, match=r"Hugging Face DeiT.* set type='vitplug.DistilledVisionTransformer'"):
        load_pretrained(MODELS.build(VIT), tmp_path / 'deit.pth')

    swin = 'swin.encoder.layers.0.blocks.0.attention.self.query.weight'
    table = 'swin.encoder.layers.0.blocks.0.attention.self.relative_position_bias_table'
    merging = 'swin.encoder.layers.0.downsample.reduction.weight'
    with pytest.raises(ValueError, match=r"Hugging Face Swin: its names .* load timm's or the original file"):
        to_vitplug({key: torch.zeros(4, 4) for key in (swin, table, merging)})
    settings = dict(num_reg_tokens=4, use_rot_pos_emb=True, swiglu_mlp=True)
    eva = Eva(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, **settings)
    with pytest.raises(ValueError, match='timm EVA with registers: vitplug has EVA-02-T, S, B and L'):
        to_vitplug(eva.state_dict())


def original_names(state, window_tokens=16):
    """A timm Swin's weights as the original release has them: other place of the merging, tables beside."""
    state = {key.replace('head.fc.', 'head.'): value for key, value in state.items()}
    for stage in (1, 2):
        for part in ('norm.weight', 'norm.bias', 'reduction.weight'):
            state[f'layers.{stage - 1}.downsample.{part}'] = state.pop(f'layers.{stage}.downsample.{part}')
    for stage in range(3):
        state[f'layers.{stage}.blocks.0.attn.relative_position_index'] = torch.zeros(window_tokens, window_tokens)
        state[f'layers.{stage}.blocks.1.attn_mask'] = torch.zeros(4, window_tokens, window_tokens)
    return state


def test_original_swin():
    theirs = timm_model('swin_tiny_patch4_window7_224', SMALL_SWIN)
    state = original_names(theirs.state_dict())
    assert recognise(state)[0].name == 'original Swin'
    ours = classifier({**SWIN, 'out_indices': (2,)}, LINEAR_HEAD, 48, 5).eval()
    ours.load_state_dict(convert(state)[0], strict=False)
    x = images(64, 64, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(x)
    assert (logits(ours, x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert_same_bits(convert(convert(state)[0], 'timm')[0], theirs.state_dict())


def mm_swin(swin_class, **settings):
    common = dict(window_size=4, out_indices=(0, 1), drop_path_rate=0.0, **settings)
    return random_weights(swin_class(**common))


DENSE_SWIN = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4), strides=(4, 2))
SWINS = {
    'mmpretrain': lambda: mm_swin(
        MMPretrainSwin, arch=dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4]), img_size=32, pad_small_map=True
    ),
    'mmdet': lambda: mm_swin(MMDetSwin, pretrain_img_size=32, **DENSE_SWIN),
    'mmseg': lambda: mm_swin(MMSegSwin, pretrain_img_size=32, **DENSE_SWIN),
}
VITS = {
    'mmpretrain': lambda: MMPretrainViT(SMALL_ARCH, img_size=32, patch_size=8, out_type='featmap'),
    'mmseg': lambda: MMSegViT(
        img_size=32,
        patch_size=8,
        embed_dims=24,
        num_layers=3,
        num_heads=3,
        patch_bias=True,
        final_norm=True,
        norm_cfg=dict(type='LN', eps=1e-6),
    ),
}
# Where a training leaves a backbone's weights in its file.
PLACES = {
    'bare': lambda state: state,
    'wrapped': lambda state: dict(model=state, epoch=3),
    'whole model': lambda state: dict(
        state_dict={f'backbone.{k}': v for k, v in state.items()} | {'decode_head.conv.weight': torch.zeros(3)}, meta={}
    ),
    'distributed': lambda state: dict(state_dict={f'module.backbone.{k}': v for k, v in state.items()}),
    'timm average': lambda state: dict(
        state_dict={k: torch.zeros_like(v) for k, v in state.items()}, state_dict_ema=state, args={}
    ),
}


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('library', SWINS)
def test_openmmlab_swin(library, place, tmp_path):
    theirs = SWINS[library]()
    path = tmp_path / 'swin.pth'
    torch.save(PLACES[place](theirs.state_dict()), path)
    ours = swin(pad_small_map=True).eval()
    coverage = load_pretrained(ours, path)
    assert coverage.missing == [] and coverage.resized == []
    x = images(40, 48, dtype=torch.float32)
    with torch.no_grad():
        for got, expected in zip(ours(x), theirs(x), strict=True):
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert_same_bits({k: v for k, v in ours.state_dict().items()}, theirs.state_dict())


def test_mmdet_position_table_and_old_norm():
    theirs = mm_swin(MMDetSwin, pretrain_img_size=32, use_abs_pos_embed=True, **DENSE_SWIN)
    state = {k.replace('norm1.', 'norm.') if k.startswith('norm1.') else k: v for k, v in theirs.state_dict().items()}
    ours = swin(pad_small_map=True, use_abs_pos_embed=True).eval()
    ours.load_state_dict({k.removeprefix('backbone.'): v for k, v in convert(state)[0].items()})
    x = images(32, 32, dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('library', VITS)
def test_openmmlab_vit(library, place, tmp_path):
    theirs = random_weights(VITS[library]())
    path = tmp_path / 'vit.pth'
    torch.save(PLACES[place](theirs.state_dict()), path)
    ours = vit(arch=SMALL_ARCH, img_size=32).eval()
    load_pretrained(ours, path)
    x = images(32, 32, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(x)[0]
        assert (ours(x)[0] - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize('patch_bias', [False, True])
@pytest.mark.parametrize('final_norm', [False, True])
def test_the_vit_that_mmseg_trains(final_norm, patch_bias, tmp_path):
    """As its configs have it; every map, not only the last."""
    settings = dict(img_size=32, patch_size=8, embed_dims=24, num_layers=3, num_heads=3, out_indices=(0, 2))
    settings |= dict(norm_cfg=dict(type='LN', eps=1e-6), final_norm=final_norm, patch_bias=patch_bias)
    theirs = random_weights(MMSegViT(**settings))
    torch.save(theirs.state_dict(), tmp_path / 'vit.pth')
    ours = VisionTransformer(**settings).eval()
    coverage = load_pretrained(ours, tmp_path / 'vit.pth')
    assert not coverage.missing and not coverage.unused
    x = images(32, 32, dtype=torch.float32)
    with torch.no_grad():
        for got, expected in zip(ours(x), theirs(x), strict=True):
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_mmpretrain_distilled_vit():
    theirs = random_weights(MMPretrainDistilled(SMALL_ARCH, img_size=32, patch_size=8))
    ours = DistilledVisionTransformer(SMALL_ARCH, img_size=32, patch_size=8).eval()
    ours.load_state_dict({k.removeprefix('backbone.'): v for k, v in convert(theirs.state_dict())[0].items()})
    x = images(32, 32, dtype=torch.float32)
    with torch.no_grad():
        for got, expected in zip(ours(x)[0], theirs(x)[0], strict=True):
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_what_timm_lacks_is_not_lost_silently():
    state = vit(plugs=[dict(type='GaussianAttentionBias')]).state_dict()
    with pytest.raises(ValueError, match=r'timm ViT has no keys for backbone\.layers\.0\.plugs\.gab'):
        convert(state, 'timm')


def test_unknown_keys():
    for key in ('conv.weight', 'stages.0.blocks.0.attn.meta_mlp.fc1.weight', 'blocks.0.attn.q.weight'):
        with pytest.raises(ValueError, match=rf'the keys \({re.escape(key)}\) match no known network: expected .*timm'):
            recognise({key: torch.zeros(1)})


def test_two_networks_need_a_prefix():
    state = vit().state_dict()
    both = {f'{who}.{key}': value for who in ('student', 'teacher') for key, value in state.items()}
    with pytest.raises(ValueError, match=r"set prefix to one of 'student\.' \(OpenMMLab ViT\), 'teacher\.'"):
        convert(both)
    assert_same_bits(convert(both, prefix='teacher.').state, {f'backbone.{k}': v for k, v in state.items()})
    with pytest.raises(ValueError, match=r"prefix='pupil\.': no key begins with it; the keys are student\."):
        convert(both, prefix='pupil.')
