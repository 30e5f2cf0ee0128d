"""`vitplug.Pretrained`: what it loads, resizes, reports and refuses, and that nothing overwrites it afterwards."""

from functools import partial

import pytest
import torch
from cases import VIT_ARCH, randomize, swin, vit
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from timm.models.eva import Eva
from torch import nn
from torch.nn import functional as F

from vitplug.backbones import DistilledVisionTransformer, VisionTransformer
from vitplug.checkpoints import load_pretrained
from vitplug.checkpoints.checkpoint_commands import convert_main


@pytest.fixture
def saved(tmp_path):
    """Writes a model's weights, or a state dict, and the text of a config, into a new file."""

    def save(weights, name='stock.pth', cfg=''):
        state = weights.state_dict() if isinstance(weights, nn.Module) else weights
        torch.save(dict(state_dict=state, meta=dict(cfg=cfg)), tmp_path / name)
        return str(tmp_path / name)

    return save


def pretrained(path, **settings):
    return dict(type='vitplug.Pretrained', checkpoint=path, **settings)


def assert_loaded(model, stock):
    own = model.state_dict()
    for key, value in stock.items():
        assert torch.equal(own[key], value), key


# --- initialising ---


@pytest.mark.parametrize('scope', ['mmengine', 'mmdet'])
@pytest.mark.parametrize('host', [vit, swin], ids=['vit', 'swin'])
def test_no_part_overwrites_what_is_loaded(host, scope, saved):
    stock = randomize(host())
    model = host(init_cfg=pretrained(saved(stock)))
    with DefaultScope.overwrite_default_scope(scope):
        model.init_weights()
    assert_loaded(model, stock.state_dict())


def classifier(num_classes=5, backbone_init=None, head='VisionTransformerClsHead', **settings):
    backbone = dict(type='vitplug.VisionTransformer', arch=VIT_ARCH, img_size=32, patch_size=8, init_cfg=backbone_init)
    head = dict(type=head, num_classes=num_classes, in_channels=24)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head, **settings))


def test_whole_classifier_with_another_head(saved):
    stock = randomize(classifier())
    model = classifier(head='LinearClsHead', init_cfg=pretrained(saved(stock)))
    model.init_weights()
    assert_loaded(model.backbone, stock.backbone.state_dict())
    [weight, bias] = model.head.parameters()
    assert torch.equal(weight, stock.head.layers.head.weight) and torch.equal(bias, stock.head.layers.head.bias)


def test_classifier_of_other_classes_starts_anew(saved, mm_log):
    model = classifier(num_classes=3, init_cfg=pretrained(saved(randomize(classifier(num_classes=5)))))
    model.init_weights()
    assert model.head.layers.head.weight.abs().max() == 0  # as that head always starts
    assert '0 new ones of plugs; missing 2 (head.layers.head.weight, head.layers.head.bias); unused' in mm_log.text


def test_parts_that_are_missing_are_initialised_as_ever(saved):
    """What the checkpoint lacks gets what init_weights gives it, not what the constructor left."""
    stock = randomize(vit()).state_dict()
    stock = {key: value for key, value in stock.items() if not key.startswith('layers.3.ffn.layers.1.')}
    model = vit(init_cfg=pretrained(saved(stock), reset=['layers.3.ffn.layers.1']))
    model.init_weights()
    assert 0 < model.layers[3].ffn.layers[1].bias.abs().max() < 1e-4
    assert torch.equal(model.layers[2].ffn.layers[1].bias, stock['layers.2.ffn.layers.1.bias'])


def test_must_come_last(saved):
    path = saved(vit())
    others = dict(type='Constant', layer='Linear', val=0.0)
    model = vit(init_cfg=[others, pretrained(path)])
    model.init_weights()
    assert model.layers[0].attn.qkv.weight.abs().max() > 0
    with pytest.raises(ValueError, match=r'vitplug\.Pretrained must come last'):
        vit(init_cfg=[pretrained(path), others]).init_weights()


# --- the line ---


def test_one_line(saved, mm_log):
    path = saved({**randomize(vit(img_size=32)).state_dict(), 'mask_token': torch.zeros(1)})
    model = vit(plugs=[dict(type='GaussianAttentionBias'), dict(type='ContextBroadcast', scaled=True)])
    coverage = load_pretrained(model, path)
    total = len(vit().state_dict())
    plugs = len(model.state_dict()) - total
    [line] = [record.getMessage() for record in mm_log.records if 'loaded' in record.getMessage()]
    assert line == (
        f'{path} (OpenMMLab ViT, state_dict): loaded {total} tensors of the backbone, 1 of them resized; '
        f'{plugs} new ones of plugs; missing 0; unused 1 (mask_token)'
    )
    assert coverage.resized == ['pos_embed']


# --- resizing ---


@pytest.mark.parametrize('target', [(32, 48), (40, 24)])
def test_position_table(target, saved):
    stock = randomize(vit(img_size=32))
    model = vit(img_size=target)
    load_pretrained(model, saved(stock))
    grid = stock.pos_embed[:, 1:].transpose(1, 2).view(1, 24, 4, 4)
    grid = F.interpolate(grid, size=[side // 8 for side in target], mode='bicubic', align_corners=False)
    assert torch.equal(model.pos_embed[:, :1], stock.pos_embed[:, :1])
    torch.testing.assert_close(model.pos_embed[:, 1:], grid.flatten(2).transpose(1, 2))


def test_swin_position_table_and_bias_tables(saved):
    stock = randomize(swin(use_abs_pos_embed=True))
    model = swin(img_size=(32, 48), use_abs_pos_embed=True, window_size=6)
    coverage = load_pretrained(model, saved(stock))
    assert len(coverage.resized) == 1 + 4
    old, new = (m.stages[1].blocks[0].attn.w_msa.relative_position_bias_table for m in (stock, model))
    image = F.interpolate(old.T.view(1, 4, 7, 7), size=(11, 11), mode='bicubic', align_corners=False)
    torch.testing.assert_close(new, image.view(4, 121).T)
    assert model.absolute_pos_embed.shape == (1, 8 * 12, 12)


# Models with other tokens before the grid than the checkpoint: class token, distillation token.
def test_tokens_before_the_grid(saved):
    settings = dict(img_size=32, patch_size=8)
    plain = randomize(VisionTransformer(VIT_ARCH, **settings))
    distilled = randomize(DistilledVisionTransformer(VIT_ARCH, **settings))
    without = VisionTransformer(VIT_ARCH, with_cls_token=False, out_type='featmap', **settings)
    load_pretrained(without, saved(distilled, 'distilled.pth'), reset=['cls_token', 'dist_token'])
    assert torch.equal(without.pos_embed, distilled.pos_embed[:, 2:])
    model = VisionTransformer(VIT_ARCH, **settings)
    load_pretrained(model, saved(distilled, 'distilled.2.pth'), reset=['dist_token'])
    assert torch.equal(model.pos_embed, distilled.pos_embed[:, [0, *range(2, 18)]])
    model = DistilledVisionTransformer(VIT_ARCH, **settings)
    load_pretrained(model, saved(plain, 'plain.pth'), reset=['dist_token'])
    assert torch.equal(model.pos_embed[:, [0, *range(2, 18)]], plain.pos_embed)
    assert model.pos_embed[:, 1].abs().max() == 0


# --- biases that a network is built without ---


def test_biases_of_all_blocks_may_be_missing_in_some_formats_but_not_of_one(saved, mm_log):
    """timm's DINOv3 may have none. A bias that is reset is not 0 by the file's word, and is not reported as loaded."""
    sizes = dict(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3, mlp_ratio=5 / 3)
    sizes |= dict(num_reg_tokens=1, global_pool='token')
    state = Eva(**sizes, use_abs_pos_emb=False, use_rot_pos_emb=True, qkv_bias=False, init_values=0.1).state_dict()
    state |= {f'blocks.{i}.attn.qkv.bias': torch.ones(72) for i in range(4)}
    model = vit(rotary='dinov3', num_storage_tokens=1, use_abs_pos_embed=False, layer_scale_init_value=0.1)
    biases = [key for key in state if key.endswith('attn.qkv.bias')]
    without = saved({key: state[key] for key in state if key not in biases})
    load_pretrained(model, without)
    assert not any(layer.attn.qkv.bias.any() for layer in model.layers) and 'are 0: layers.0' in mm_log.text
    convert_main([without, converted := f'{without}.new.pth'])
    load_pretrained(model, converted)
    with pytest.raises(ValueError, match=r"its positions are rotated, .* set rotary='dinov3'"):
        model.rotary.mode = 'eva02'
        load_pretrained(model, converted)
    model.rotary.mode = 'dinov3'
    missing = [f'layers.{i}.attn.qkv.bias' for i in range(4)]
    assert load_pretrained(model, without, reset=['qkv.bias']).missing == missing
    with pytest.raises(ValueError, match=r'it lacks 1 tensors that the backbone needs: layers\.2\.attn\.qkv\.bias'):
        load_pretrained(model, saved({key: state[key] for key in state if key != biases[2]}, 'damaged.pth'))
    for lacking in ('attn.qkv.bias', 'patch_embed.projection.bias'):
        own = {key: value for key, value in vit().state_dict().items() if not key.endswith(lacking)}
        with pytest.raises(ValueError, match=rf'it lacks . tensors that the backbone needs: .*{lacking}'):
            load_pretrained(vit(), saved(own, 'own.pth'))


# --- refusals: each names the file ---


def test_wrong_family(saved):
    same_width = swin(arch=dict(embed_dims=24, depths=[2, 2], num_heads=[3, 4]), patch_size=8, img_size=64)
    with pytest.raises(
        ValueError,
        match=r'stock\.pth \(OpenMMLab Swin, .* is of another network: .* needs: cls_token, .*no place .*stages',
    ):
        load_pretrained(vit(), saved(same_width))
    with pytest.raises(ValueError, match=r'stock\.2\.pth: (?s:.*)size mismatch for patch_embed'):
        load_pretrained(vit(), saved(swin(), 'stock.2.pth'))


@pytest.mark.parametrize('blocks', [3, 5])
def test_wrong_depth_either_way(saved, blocks):
    stock, model, first = vit(arch={**VIT_ARCH, 'num_layers': blocks}), vit(), min(4, blocks)
    with pytest.raises(ValueError, match=rf'layers\.{first}\.ln1\.weight, .*docs/checkpoints.md has the arguments'):
        load_pretrained(model, saved(stock))
    assert load_pretrained(model, saved(stock, 'again.pth'), reset=[f'layers.{first}']).unused == []


@pytest.mark.parametrize(
    ('settings', 'name'),
    [(dict(pre_norm=True), r'pre_norm\.weight'), (dict(plugs='rel-pos-mlp'), r'layers\.0\.plugs\.rel_pos_mlp')],
)
def test_parts_that_the_model_lacks_are_refused(saved, settings, name):
    with pytest.raises(ValueError, match=rf'is of another network: .*no place for \d+ tensors of it: {name}'):
        load_pretrained(vit(), saved(vit(**settings)))


def test_outputs_of_a_pyramid_that_a_classifier_lacks(saved):
    """Its one norm is that of the last stage. Norms of outputs that are not asked for are not loaded."""
    stock = randomize(swin(out_indices=(1,)))
    model = swin(out_indices=(0, 1))
    assert load_pretrained(model, saved(stock)).missing == ['norm0.weight', 'norm0.bias']
    assert_loaded(model, stock.state_dict())
    assert load_pretrained(swin(out_indices=(0,)), saved(model, 'wide.pth')).unused == ['norm1.weight', 'norm1.bias']
    for given, wanted, lacking in (((0,), (0, 1), 1), ((1, 2), (0, 1, 2), 0)):  # norms of a detector
        arch = dict(embed_dims=12, depths=[2] * (1 + max(wanted)), num_heads=[2, 4, 4][: 1 + max(wanted)])
        path = saved(swin(arch=arch, out_indices=given), f'detector.{lacking}.pth')
        with pytest.raises(ValueError, match=rf'it lacks 2 tensors that the backbone needs: norm{lacking}\.weight'):
            load_pretrained(swin(arch=arch, out_indices=wanted), path)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (
            "layer_cfgs=dict(act_cfg=dict(type='mmpretrain.QuickGELU'))",
            r"activation=\['QuickGELU'\], .* \['GELU'\]: set",
        ),
        ("norm_cfg=dict(type='LN', eps=1e-5)", r'eps=\[1e-05\], .* \[1e-06\]: set it'),
        ('arch=dict(num_heads=6)', r'num_heads=\[6\], .* \[3\]: set it'),
    ],
)
def test_the_config_tells_what_keys_do_not(saved, settings, message):
    path = saved(vit(), 'trained.pth', f'model = dict(backbone=dict(type="VisionTransformer", {settings}))')
    with pytest.raises(ValueError, match=rf'trained\.pth was trained with {message}'):
        load_pretrained(vit(), path)


def test_table_of_another_grid_with_as_many_entries(saved):
    """The config in the checkpoint tells 2 x 8 from 8 x 2 patches; the table alone does not."""
    cfg = "model = dict(backbone=dict(type='vitplug.VisionTransformer', img_size=(16, 64)))"
    path = saved(vit(img_size=(16, 64)), 'wide.pth', cfg)
    assert load_pretrained(vit(img_size=(16, 64)), path).resized == []
    with pytest.raises(ValueError, match=r'wide\.pth was trained on images of 16x64, .* a 2x8 grid, not of 8x2'):
        load_pretrained(vit(img_size=(64, 16)), path)
    for side in (32, 64):  # as many entries, which are a square, and a square that would be resized
        with pytest.raises(ValueError, match=r'wide\.pth was trained on images of 16x64, .* a 2x8 grid, not of 4x4'):
            load_pretrained(vit(img_size=side), path)
    # 5 x 16 and a class token are 9 x 9.
    path = saved(vit(img_size=(40, 128)), 'wide.2.pth', cfg.replace('(16, 64)', '(40, 128)'))
    with pytest.raises(ValueError, match=r'images of 40x128, .* a 5x16 grid, not of 9x9'):
        load_pretrained(vit(img_size=32), path)


@pytest.mark.parametrize('size', [(65, 20), 32])
def test_table_of_whole_patches(saved, size):
    """mmseg counts no others: 2 x 8 in images of 20 x 65."""
    settings = dict(type='vitplug.VisionTransformer', patch_size=8, embed_dims=24, num_layers=2, num_heads=3)
    path = saved(MODELS.build(dict(settings, img_size=(20, 65))), cfg='model = dict(backbone=dict(img_size=(20, 65)))')
    load_pretrained(MODELS.build(dict(settings, img_size=(20, 65))), path)
    with pytest.raises(ValueError, match=r'images of 20x65, .* a 2x8 grid, not of (8x2|4x4): set'):
        load_pretrained(MODELS.build(dict(settings, img_size=size)), path)


BIAS_TABLE = 'stages.0.blocks.0.attn.w_msa.relative_position_bias_table'
REFUSED = {
    'no square': (vit, {'pos_embed': torch.zeros(1, 15, 24)}, 'pos_embed: .* 15 entries, which are no square'),
    'no window': (swin, {BIAS_TABLE: torch.zeros(15, 2)}, 'bias_table: .* 15 entries, which belong to no'),
    'an even square': (swin, {BIAS_TABLE: torch.zeros(16, 2)}, 'bias_table: .* 16 entries, which belong to no'),
    # A file without a config has a square where that is possible.
    'as many tokens': (partial(vit, img_size=(16, 64)), {}, 'does not say .* a 4x4 grid, not of 2x8: set img_size'),
    # torch would cast them without a word.
    'no floats': (vit, {'ln1.bias': torch.zeros(24, dtype=torch.int64)}, r'ln1\.bias is stored as torch\.int64'),
    'low-rank updates': (vit, {'layers.0.attn.qkv.lora_A': torch.ones(2, 2)}, r'qkv\.lora_A: low-rank updates'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_weights_that_would_be_wrong_without_a_word(saved, case):
    host, weights, message = REFUSED[case]
    stock = swin() if host is swin else vit(img_size=32)
    with pytest.raises(ValueError, match=rf'stock\.pth.*{message}'):
        load_pretrained(host(), saved(stock.state_dict() | weights))


def test_reset_starts_the_named_tensors_anew(saved):
    plugs = [dict(type='RelPosMlp', hidden_dims=8), dict(type='GaussianAttentionBias')]
    source, target = randomize(vit(plugs=plugs[:1])), vit(plugs=plugs)
    start = {key: value.clone() for key, value in target.state_dict().items()}
    load_pretrained(target, saved(source), reset=['rel_pos_mlp'])
    for key, value in target.state_dict().items():
        expected = start if 'plugs' in key.split('.') else source.state_dict()
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize('reset', ['3', ['rel_pos']])
def test_reset_of_nothing(saved, reset):
    with pytest.raises(ValueError, match=r'stock\.pth: reset='):
        load_pretrained(vit(), saved(vit()), reset=reset)


def test_files_of_dino(tmp_path):
    """Student and teacher are two dicts beside each other; the refusal names prefixes that load."""
    states = [randomize(vit()).state_dict() for _ in range(2)]
    content = dict(
        student={f'module.backbone.{key}': value for key, value in states[0].items()},
        teacher={f'backbone.{key}': value for key, value in states[1].items()} | {'head.mlp.0.bias': torch.ones(2)},
        optimizer=dict(state={0: dict(step=1)}),
        epoch=3,
    )
    model, path = vit(), tmp_path / 'dino.pth'
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"one of 'student\.module\.backbone\.' .*, 'teacher\.backbone\.' "):
        load_pretrained(model, path)
    load_pretrained(model, path, 'teacher.backbone.')
    assert_loaded(model, states[1])
