"""Weights of the papers' authors compute in vitplug what their networks compute, and every tensor has a place."""

import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from cases import images
from checkpoints import released
from checkpoints.released import randoms
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS

from vitplug.checkpoints import convert, load_pretrained, recognise, to_vitplug
from vitplug.checkpoints.checkpoint_commands import convert_main
from vitplug.checkpoints.formats import is_derived

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
OFFICIAL = dict(type='Refiner', scheme='official', mode='mbconv', init='default', share=1)
VIT = dict(type='vitplug.VisionTransformer', arch=dict(embed_dims=24, num_layers=4, num_heads=3))
REFINED = dict(
    VIT,
    arch=dict(VIT['arch'], feedforward_channels=72),
    img_size=64,
    patch_size=16,
    stem='conv',
    layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6)),
    plugs=[OFFICIAL],
)
WIDE = dict(VIT['arch'], feedforward_channels=96)
REVIT = dict(
    VIT,
    arch=WIDE,
    img_size=32,
    patch_size=8,
    with_cls_token=False,
    out_type='featmap',
    plugs=[dict(type='ResidualAttention', constraint='none')],
)
RESWIN = dict(
    type='vitplug.SwinTransformer',
    arch=dict(embed_dims=12, depths=[2, 2, 2], num_heads=[2, 4, 4]),
    img_size=64,
    window_size=4,
    out_indices=(2,),
    plugs=[dict(type='ResidualAttention', learnable=False, bias_mode='blend', stage_transition='flat_nearest')],
)
BVIT = dict(
    VIT,
    arch=WIDE,
    img_size=64,
    # Patches of 8 x 8 after a 7 x 7 convolution of stride 2, of 3 channels.
    patch_size=16,
    patch_cfg=dict(kernel_size=21, padding=3),
    qkv_bias=False,
    norm_cfg=dict(type='LN'),
    plugs=[dict(type='BroadAttention', gamma=0.4, scale='head')],
)
CLS_HEAD, LINEAR_HEAD = dict(type='VisionTransformerClsHead'), dict(type='LinearClsHead')
OPTIONS = Namespace(lr=0.1)


def of_timm(state):
    """As timm's training saves them, with averaged weights beside."""
    return dict(state_dict={k: torch.zeros_like(v) for k, v in state.items()}, state_dict_ema=state, args=OPTIONS)


def of_revit(state):
    return dict(epoch=3, model_state_dict={f'module.{k}': v for k, v in state.items()}, optimizer_state_dict={})


def of_bvit(state):
    return dict(model={f'model.{k}': v for k, v in state.items()}, epoch=3, args=OPTIONS)


# Shapes, their network, vitplug's backbone and head, what the authors save, the format's name, side of the images.
RELEASED = {
    'refined-vit': (released.refined_vit(), released.run_refined_vit, REFINED, CLS_HEAD, of_timm, 'Refined-ViT', 64),
    'refined-vit-dense': (
        released.refined_vit(dense=True),
        released.run_refined_vit,
        dict(REFINED, out_type='raw'),
        dict(type='vitplug.TokenLabelHead'),
        of_timm,
        'Refined-ViT',
        64,
    ),
    'refined-vit-unscaled': (
        released.refined_vit(scaled=False),
        released.run_refined_vit,
        REFINED,
        CLS_HEAD,
        of_timm,
        'Refined-ViT',
        64,
    ),
    'revit': (released.revit(), released.run_revit, REVIT, LINEAR_HEAD, of_revit, 'ReViT', 32),
    'reswin': (released.reswin(), released.run_reswin, RESWIN, LINEAR_HEAD, of_revit, 'original Swin', 64),
    'bvit': (released.bvit(), released.run_bvit, BVIT, CLS_HEAD, of_bvit, 'BViT', 64),
}


def classifier(backbone, head, num_classes=5):
    in_channels = 48 if backbone is RESWIN else 24
    head = dict(head, in_channels=in_channels, num_classes=num_classes)
    neck = dict(type='GlobalAveragePooling') if head['type'] == 'LinearClsHead' else None
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)).double().eval()


def logits(model, x):
    with torch.no_grad():
        return model.head(model.extract_feat(x))


@pytest.mark.parametrize('case', RELEASED)
def test_scores_are_those_of_the_authors_network(case, tmp_path):
    shapes, run, backbone, head, save, name, side = RELEASED[case]
    state = randoms(shapes)
    torch.save(save(state), tmp_path / 'released.pth')
    model = classifier(backbone, head)
    coverage = load_pretrained(model, tmp_path / 'released.pth')
    assert f'({name}, ' in coverage.source
    assert [coverage.missing, coverage.plugs, coverage.heads, coverage.unused, coverage.resized] == [[]] * 5
    x = images(side, side)
    expected = run(state, x)
    assert (logits(model, x) - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_statistics_of_maps_keep_their_number_of_tokens(tmp_path):
    """In a network for larger images, too: probabilities are smaller there, and the plug makes up for it."""
    torch.save(randoms(released.refined_vit()), tmp_path / 'released.pth')
    model = classifier(dict(REFINED, img_size=96), CLS_HEAD)
    load_pretrained(model, tmp_path / 'released.pth')
    found = [value.item() for key, value in model.state_dict().items() if key.endswith('reference_tokens')]
    assert found == [17, 17]


# The description of the authors' code counts these parameters.
FULL = {
    'refiner/convstem-vit-s-p16-refiner-official_8xb64-300e_in1k': (
        released.refined_vit(384, 16, 12, 1000, 224, 16),
        25_023_656,
    ),
    'refiner/convstem-vit-m-p16-refiner-official_8xb64-300e_in1k': (
        released.refined_vit(420, 32, 12, 1000, 224, 16),
        55_029_932,
    ),
    'refiner/convstem-vit-l-p16-refiner-official_8xb64-300e_in1k': (
        released.refined_vit(512, 32, 16, 1000, 224, 16),
        80_637_192,
    ),
    'residual_attention/vit-b-p16-residual-official_32xb128-300e_in1k': (
        released.revit(768, 12, 1000, 224, 16),
        86_566_121,
    ),
    'residual_attention/swin-t-p4-w7-residual-official_8xb128-300e_in1k': (
        released.reswin(96, (2, 2, 6, 2), (3, 6, 12, 24), 1000, 7, 4),
        28_288_354,
    ),
}
BUFFERS = re.compile(r'.*(?:running_mean|running_var|num_batches_tracked)')


def on_meta(shapes):
    """Tensors of these shapes, without numbers."""
    return {name: torch.empty(shape, device='meta') for name, shape in shapes.items()}


def count(shapes):
    return sum(torch.Size(shape).numel() for name, shape in shapes.items() if not BUFFERS.fullmatch(name))


def assert_fits(shapes, config):
    """Asserts that the network of a config has these tensors and no others."""
    cfg = Config.fromfile(CONFIGS / f'{config}.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'), torch.device('meta'):
        own = MODELS.build(cfg.model).state_dict()
    given = to_vitplug(on_meta(shapes)).state
    # The classifier has one of two names.
    own, given = (
        {key.replace('head.layers.head.', 'head.fc.'): value.shape for key, value in state.items()}
        for state in (own, given)
    )
    assert given == {key: shape for key, shape in own.items() if not is_derived(key)}
    return cfg


@pytest.mark.parametrize('config', FULL)
def test_every_released_tensor_has_a_place_in_the_config(config):
    shapes, parameters = FULL[config]
    assert count(shapes) == parameters
    cfg = assert_fits(shapes, config)
    if 'refiner' in config:  # LN(x / 2) with an epsilon of 1e-6
        assert cfg.model.backbone.layer_cfgs.norm_cfg == dict(type='LN', eps=4e-6)


def test_plugs_have_no_name_in_timm():
    refined, revit = (randoms(shapes) for shapes in (released.refined_vit(), released.revit()))
    with pytest.raises(ValueError, match=r'timm ViT has no keys for backbone\.patch_embed\.stem\.0.*be exported'):
        convert(refined, 'timm')
    with pytest.raises(ValueError, match=r'timm ViT has no keys for .*plugs\.residual_attention'):
        convert(revit, 'timm')


# --- what is refused ---


def without(state, *parts):
    return {key: value for key, value in state.items() if not any(part in key for part in parts)}


def test_variants_that_vitplug_lacks_are_refused_by_name():
    refined, bvit = randoms(released.refined_vit()), randoms(released.bvit())
    with pytest.raises(ValueError, match=r'Refined-ViT: blocks \[3\] of 4 refine a map: expected every second one'):
        to_vitplug(without(refined, 'blocks.1.attn.DLA', 'blocks.1.attn.adapt_bn'))
    hybrid = {f'patch_embed.backbone.{i}.weight': torch.zeros(1) for i in range(7)}
    with pytest.raises(
        ValueError, match=r'Refined-ViT has no patch_embed\.backbone\.0\.weight, .*\(7 of \d+ tensors\)'
    ):
        to_vitplug(refined | hybrid)
    with pytest.raises(ValueError, match=r'BViT: pos_embedding has 50 entries: expected one more than an even square'):
        to_vitplug(dict(bvit, pos_embedding=torch.zeros(1, 50, 24)))
    with pytest.raises(ValueError, match=r'BViT: conv\.weight has shape \(8, 3, 7, 7\) and .*expected \(3, 3, 7, 7\)'):
        to_vitplug(dict(bvit, **{'conv.weight': torch.zeros(8, 3, 7, 7)}))
    with pytest.raises(ValueError, match=r'match no known network: expected Refined-ViT, .*timm ViT'):
        recognise(without(bvit, 'conv.'))  # a ViT of another library, with the same names


def test_bvit_does_not_fit_the_papers_patches(tmp_path):
    torch.save(of_bvit(randoms(released.bvit())), tmp_path / 'bvit.pth')
    model = classifier(dict(BVIT, patch_size=16, patch_cfg=dict()), CLS_HEAD)
    with pytest.raises(ValueError, match=r'bvit\.pth: .*patch_embed\.projection\.weight has shape \(24, 3, 21, 21\)'):
        load_pretrained(model, tmp_path / 'bvit.pth')


# --- the command ---


def test_command_says_what_was_left_out_and_added(tmp_path, capsys):
    def printed(shapes, name):
        torch.save(randoms(shapes), tmp_path / f'{name}.pth')
        convert_main([str(tmp_path / f'{name}.pth'), str(tmp_path / f'{name}.new.pth')])
        [line] = capsys.readouterr().out.splitlines()
        return line.partition('tensors, ')[2]

    assert printed(released.refined_vit(scaled=False), 'refined') == (
        'from Refined-ViT to vitplug; added 2 reference_tokens, the 17 tokens of pos_embed; added 4 scales of 1, which '
        'the first code does not have'
    )
    assert printed(released.bvit(), 'bvit') == (
        'from BViT to vitplug; conv and to_patch_embedding.1 are one convolution, patch_embed.projection; left out 48 '
        'of 65 positions in pos_embedding, which the code never reads'
    )
    assert printed(released.revit(), 'revit') == 'from ReViT to vitplug'
    tables = {f'layers.0.blocks.{i}.attn.relative_position_index': (16, 16) for i in range(2)}
    assert printed(released.reswin() | tables | {'layers.0.blocks.1.attn_mask': (4, 16, 16)}, 'reswin') == (
        'from original Swin to vitplug; left out tables that models compute '
        '(3: layers.0.blocks.0.attn.relative_position_index, layers.0.blocks.1.attn.relative_position_index, ...)'
    )
