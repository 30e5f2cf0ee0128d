"""MACs against closed forms written down from the shapes, on tiny hosts with every plug, and against timm."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.lab.costs import build_model, count_costs, count_parameters

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
DETECTOR = 'digits/swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
CLASSIFIER = 'digits/vit-mini-p4-cb_1xb32-14e_digits-32x32.py'


def count(backbone_class, hw, **settings):
    """MACs of a backbone, and of its plugs that have some."""
    model = Alone()
    with torch.device('meta'):
        model.backbone = backbone_class(**settings).eval()
    found = count_costs(model, 'mmpretrain', (3, *hw))
    return {part: cost.macs for part, cost in found.items() if cost.macs and part != 'total'}


class Alone(nn.Module):
    """A backbone without a head."""

    def forward(self, images, mode):
        return self.backbone(images)


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
MLP = LAYERS * 2 * TOKENS * DIMS * HIDDEN
PLAIN = PATCHES * 3 * 8 * 8 * DIMS + ATTENTION + MLP
# What each plug adds; the attention differs from the host's where its heads do.
FOLD = HEADS * (3 * HEADS) * (9 * HEADS)
ON_VIT = {
    'cb': {},
    "cb(scaled=True, position=['msa', 'mlp_mid'])": {},
    'rel-pos-bias': {},
    'gab': {},
    # Written out, the scores of a fused call would be those of 1, 2 and 3 blocks; counted is the recursion.
    'residual(low_memory=True)': {},
    'se(reduction=4)': {'se': LAYERS * 2 * DIMS * DIMS // 4},
    'rel-pos-mlp(hidden_dims=7)': {'rel_pos_mlp': LAYERS * 5 * 9 * (2 * 7 + 7 * HEADS)},
    'broad': {'broad': TOKENS**2 * LAYERS * DIMS + TOKENS**2 * DIMS},
    'refiner': {'refiner': LAYERS * (9 * HEADS**2 * TOKENS**2 + FOLD)},
    'refiner(expansion=0)': {'refiner': LAYERS * 9 * HEADS * TOKENS**2},
}


def with_plugs(plain, added):
    """The backbone's MACs contain those of its plugs."""
    plugs = {f'backbone.plugs.{name}': macs for name, macs in added.items()}
    return {'backbone': plain + sum(added.values())} | plugs


@pytest.mark.parametrize('plugs', ON_VIT)
def test_vit_is_its_closed_form(plugs):
    assert vit(plugs) == with_plugs(PLAIN, ON_VIT[plugs])


def test_attention_that_a_plug_changes():
    """Uniform heads have no query and key; blocks 1 and 2 take the map of block 0, without these and one product."""
    saved = LAYERS * 2 * (TOKENS * DIMS * HEAD_DIMS + TOKENS**2 * HEAD_DIMS)
    assert vit('uniform') == {'backbone': PLAIN - saved}
    found = vit('refiner(share=2, expansion=0)')
    saved = 2 * (2 * TOKENS * DIMS**2 + TOKENS**2 * DIMS)
    assert found['backbone'] - found['backbone.plugs.refiner'] == PLAIN - saved


def test_blocks_that_lack_a_branch():
    found = vit(layer_cfgs=[dict(with_attn=False), dict(with_ffn=False), {}])
    assert found == {'backbone': PLAIN - ATTENTION // 3 - MLP // 3}


# --- the hierarchical host ---

SWIN = dict(arch=dict(embed_dims=16, depths=[2, 2], num_heads=[2, 4]), window_size=4, out_indices=(1,))


def closed_form(side):
    """Plain Swin on a square image: two stages of two blocks, windows of 4 x 4, MLPs four times as wide."""
    maps = ((side // 4, 16), (-(-(side // 4) // 2), 32))
    found = maps[0][0] ** 2 * 3 * 16 * 16 + maps[1][0] ** 2 * (4 * 16) * 32
    for own, dims in maps:
        padded = -(-own // 4) * 4
        products = 2 * (padded // 4) ** 2 * 16**2 * dims
        # Padding takes part in the products of the windows, but is not projected.
        found += 2 * (4 * own**2 * dims**2 + products) + 2 * own**2 * 8 * dims**2
    return found


@pytest.mark.parametrize('side', [32, 64, 72])
def test_plain_swin_is_its_closed_form(side):
    assert count(SwinTransformer, (side, side), **SWIN) == {'backbone': closed_form(side)}


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
    'broad': {'broad': 64**2 * (16 + 32) + 64**2 * 32},
    'refiner': {'refiner': REFINED},
}


@pytest.mark.parametrize('plugs', ON_SWIN)
def test_swin_is_its_closed_form(plugs):
    assert count(SwinTransformer, (64, 64), plugs=plugs, **SWIN) == with_plugs(closed_form(64), ON_SWIN[plugs])


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
    parameters = sum(p.numel() for p in theirs.parameters())
    assert ours['total'] == (parameters, counter.get_total_flops() // 2)


# --- whole models ---


def costs_of(config, chw, **changes):
    cfg = Config.fromfile(CONFIGS / config)
    cfg.merge_from_dict(changes)
    return count_costs(build_model(cfg), cfg.default_scope, chw)


def test_detector_runs_its_heads_on_the_regions_of_test_cfg():
    cfg = Config.fromfile(CONFIGS / DETECTOR)
    model = build_model(cfg)
    costs = count_costs(model, 'mmdet', (cfg.model.backbone.in_channels, 128, 128))
    boxes = sum(m.weight.numel() for m in model.roi_head.bbox_head.modules() if isinstance(m, nn.Linear))
    masks = sum(
        m.weight.numel() * (28 if m is model.roi_head.mask_head.conv_logits else 14) ** 2
        for m in model.roi_head.mask_head.modules()
        if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)
    )
    regions = cfg.model.test_cfg
    assert costs['roi_head'].macs == regions.rpn.max_per_img * boxes + regions.rcnn.max_per_img * masks
    parts = [costs[part] for part in ('backbone', 'neck', 'rpn_head', 'roi_head')]
    assert tuple(map(sum, zip(*parts, strict=True))) == costs['total']


def test_shared_parameters_count_once():
    model = nn.ModuleDict(dict(a=nn.Linear(3, 4, device='meta'), b=nn.Linear(3, 4, device='meta')))
    model.b.weight = model.a.weight
    assert count_parameters(model) == 20


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
