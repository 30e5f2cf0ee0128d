"""MACs against closed forms written down from the shapes, on tiny hosts with every plug, and against timm."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitplug.attention import fused_attention
from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.lab.costs import MACS, REST, build_model, count_costs, count_operations, count_parameters, label_parts

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
DETECTOR = 'digits/swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
CLASSIFIER = 'digits/vit-mini-p4-cb_1xb32-14e_digits-32x32.py'


def count(backbone_class, hw, batch=1, **settings):
    """MACs of a backbone by part."""
    with torch.device('meta'):
        backbone = backbone_class(**settings).eval()
    model = nn.Module()
    model.backbone = backbone
    counts = count_operations(label_parts(model), lambda: backbone(torch.empty(batch, 3, *hw, device='meta')))
    return {part: found[MACS] for part, found in counts.items() if found[MACS]}


# --- the columnar host ---

LAYERS, DIMS, HEADS, HIDDEN = 3, 24, 4, 40
HEAD_DIMS = DIMS // HEADS
GRID = (3, 5)
PATCHES = 15
TOKENS = PATCHES + 1
ARCH = dict(embed_dims=DIMS, num_layers=LAYERS, num_heads=HEADS, feedforward_channels=HIDDEN)


def vit(plugs='none', **settings):
    return count(VisionTransformer, (24, 40), arch=ARCH, img_size=(24, 40), patch_size=8, plugs=plugs, **settings)


ATTENTION = LAYERS * (4 * TOKENS * DIMS**2 + 2 * TOKENS**2 * DIMS)
PLAIN = {
    'backbone.other': PATCHES * 3 * 8 * 8 * DIMS,
    'backbone.attention': ATTENTION,
    'backbone.mlp': LAYERS * 2 * TOKENS * DIMS * HIDDEN,
}
# What each plug adds; the attention differs from the host's where its heads do.
FOLD = HEADS * (3 * HEADS) * (9 * HEADS)
UNIFORM = ATTENTION - LAYERS * 2 * (TOKENS * DIMS * HEAD_DIMS + TOKENS**2 * HEAD_DIMS)
ON_VIT = {
    'cb': {},
    "cb(scaled=True, position=['msa', 'mlp_mid'])": {},
    'rel-pos-bias': {},
    'gab': {},
    # Written out, the scores of a fused call would be those of 1, 2 and 3 blocks; counted is the recursion.
    'residual(low_memory=True)': {},
    'se(reduction=4)': {'backbone.plugs.se': LAYERS * 2 * DIMS * DIMS // 4},
    'uniform': {'backbone.attention': UNIFORM},
    'rel-pos-mlp(hidden_dims=7)': {'backbone.plugs.rel_pos_mlp': LAYERS * 5 * 9 * (2 * 7 + 7 * HEADS)},
    'broad': {'backbone.plugs.broad': TOKENS**2 * LAYERS * DIMS + TOKENS**2 * DIMS},
    'refiner': {'backbone.plugs.refiner': LAYERS * (9 * HEADS**2 * TOKENS**2 + FOLD)},
    'refiner(expansion=0)': {'backbone.plugs.refiner': LAYERS * 9 * HEADS * TOKENS**2},
}


@pytest.mark.parametrize('plugs', ON_VIT)
def test_vit_is_its_closed_form(plugs):
    assert vit(plugs) == PLAIN | ON_VIT[plugs]


def test_plain_vit_and_its_batch():
    assert vit() == PLAIN
    with fused_attention(True):
        assert vit() == PLAIN
    three = count(VisionTransformer, (24, 40), 3, arch=ARCH, img_size=(24, 40), patch_size=8)
    assert three == {part: 3 * macs for part, macs in PLAIN.items()}


def test_shared_map_has_no_query_and_key():
    """Blocks 1 and 2 take the map of block 0: two of four projections and one of two products are left."""
    saved = 2 * (2 * TOKENS * DIMS**2 + TOKENS**2 * DIMS)
    assert vit('refiner(share=2, expansion=0)')['backbone.attention'] == ATTENTION - saved


def test_blocks_that_lack_a_branch():
    found = vit(layer_cfgs=[dict(with_attn=False), dict(with_ffn=False), {}])
    shares = {'backbone.attention': 2, 'backbone.mlp': 2}
    assert found == {part: macs * shares.get(part, 3) // 3 for part, macs in PLAIN.items()}


# --- the hierarchical host ---

SWIN = dict(arch=dict(embed_dims=16, depths=[2, 2], num_heads=[2, 4]), window_size=4, out_indices=(1,))


def closed_form(side):
    """Plain Swin on a square image: two stages of two blocks, windows of 4 x 4, MLPs four times as wide."""
    maps = ((side // 4, 16), (-(-(side // 4) // 2), 32))
    found = {'backbone.other': maps[0][0] ** 2 * 3 * 16 * 16 + maps[1][0] ** 2 * (4 * 16) * 32}
    found |= {'backbone.attention': 0, 'backbone.mlp': 0}
    for own, dims in maps:
        padded = -(-own // 4) * 4
        products = 2 * (padded // 4) ** 2 * 16**2 * dims
        # Padding takes part in the products of the windows, but is not projected.
        found['backbone.attention'] += 2 * (4 * own**2 * dims**2 + products)
        found['backbone.mlp'] += 2 * own**2 * 8 * dims**2
    return found


@pytest.mark.parametrize('side', [32, 64, 72])
def test_plain_swin_is_its_closed_form(side):
    assert count(SwinTransformer, (side, side), **SWIN) == closed_form(side)


# On an image of 64 x 64: 16 windows, then 4.
WINDOWS, WINDOW = (16, 4), 16
REFINED = sum(
    2 * (windows * 9 * heads**2 * WINDOW**2 + heads * 3 * heads * 9 * heads)
    for windows, heads in zip(WINDOWS, (2, 4), strict=True)
)
ON_SWIN = {
    'cb': {},
    'gab': {},
    'residual': {},
    # The last block of both stages, on the last map of 8 x 8.
    'broad': {'backbone.plugs.broad': 64**2 * (16 + 32) + 64**2 * 32},
    'refiner': {'backbone.plugs.refiner': REFINED},
}


@pytest.mark.parametrize('plugs', ON_SWIN)
def test_swin_is_its_closed_form(plugs):
    assert count(SwinTransformer, (64, 64), plugs=plugs, **SWIN) == closed_form(64) | ON_SWIN[plugs]


# --- other people's models ---


@pytest.mark.parametrize(
    ('name', 'config'),
    [
        ('deit_tiny_patch16_224', 'context_broadcast/deit-ti-p16_8xb128-300e_in1k.py'),
        ('swin_tiny_patch4_window7_224', 'residual_attention/swin-t-p4-w7_8xb128-300e_in1k.py'),
    ],
)
def test_configs_cost_what_timm_does(name, config):
    timm = pytest.importorskip('timm')
    with torch.device('meta'):
        theirs = timm.create_model(name).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        theirs(torch.empty(1, 3, 224, 224, device='meta'))
    ours = costs_of(config, (3, 224, 224))
    assert ours.total_macs == counter.get_total_flops() // 2
    assert ours.total_parameters == sum(p.numel() for p in theirs.parameters())


# --- whole models ---


def costs_of(config, chw, **changes):
    cfg = Config.fromfile(CONFIGS / config)
    cfg.merge_from_dict(changes)
    return count_costs(build_model(cfg), cfg.default_scope, chw)


def test_detector_runs_its_heads_on_the_regions_of_test_cfg():
    cfg = Config.fromfile(CONFIGS / DETECTOR)
    model = build_model(cfg)
    costs = count_costs(model, 'mmdet', (cfg.model.backbone.in_channels, 128, 128))
    layers = [m.weight.numel() for m in model.roi_head.bbox_head.modules() if isinstance(m, nn.Linear)]
    assert costs.macs['roi_head.bbox_head'] == cfg.model.test_cfg.rpn.max_per_img * sum(layers)
    assert min(costs.macs[part] for part in ('neck', 'rpn_head', 'roi_head.mask_head')) > 0
    assert REST not in costs.macs and costs.total_parameters == sum(p.numel() for p in model.parameters())


def test_shared_parameters_count_once():
    model = nn.ModuleDict(dict(a=nn.Linear(3, 4, device='meta'), b=nn.Linear(3, 4, device='meta')))
    model.b.weight = model.a.weight
    assert count_parameters(model, label_parts(model)) == {'a': 16, 'b': 4}


# --- elementwise work of plugs ---

# Additional FLOPs of ViT-S in millions, Tables 13 and 14 of the paper of Context Broadcasting.
PAPERS_MILLIONS = {
    'cb': 0.9,
    'cb-both': 1.8,
    'cb-gate-mid': 3.6,
    'cb-hybrid-mid': 7.3,
}


@pytest.mark.parametrize('plug', PAPERS_MILLIONS)
def test_elementwise_work_of_cb_is_the_papers(plug):
    costs = costs_of(f'context_broadcast/deit-s-p16-{plug}_8xb128-300e_in1k.py', (3, 224, 224))
    assert round(costs.elements['backbone.plugs.cb'] / 1e6, 1) == PAPERS_MILLIONS[plug]
    assert costs.elements.keys() == {'backbone.plugs.cb'} and 'backbone.plugs.cb' not in costs.macs


# --- bad input ---


def test_config_without_model_is_named(tmp_path):
    path = tmp_path / 'data.py'
    path.write_text("default_scope = 'mmpretrain'")
    with pytest.raises(ValueError, match=r'data\.py: the config has no `model`'):
        build_model(Config.fromfile(path))


@pytest.mark.parametrize(
    ('changes', 'chw', 'words'),
    [
        ({'model.backbone.type': 'Nothing'}, (1, 32, 32), 'Nothing'),
        ({'model.backbone.colour': 'red'}, (1, 32, 32), 'colour'),
        ({}, (1, 2, 2), '2'),
        ({}, (3, 32, 32), 'images of 32x32'),
    ],
)
def test_models_that_cannot_be_built_and_images_that_do_not_fit_say_why(changes, chw, words):
    with pytest.raises(ValueError, match=words):
        costs_of(CLASSIFIER, chw, **changes)
