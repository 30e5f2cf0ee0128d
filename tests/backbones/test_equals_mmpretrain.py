"""With ``plugs=[]`` the hosts are mmpretrain's: same keys, same numbers."""

import copy
import inspect
from functools import partial

import mmpretrain.models as stock
import pytest
import torch
from cases import MIXER_ARCH, MVIT_ARCH, SWIN_ARCH, VIT_ARCH, images, pit, randomize, swin, swin_v2, vit

from vitplug import backbones
from vitplug.attention import fused_attention
from vitplug.backbones import SwinTransformer, VisionTransformer

VIT_VARIANTS = {
    'cls-token': dict(out_type='cls_token'),
    'featmap': dict(out_type='featmap', out_indices=[0, 1, -1]),
    'avg-featmap': dict(out_type='avg_featmap', out_indices=[1, 3]),
    'raw': dict(out_type='raw', out_indices=-2),
    'featmap-no-cls': dict(out_type='featmap', with_cls_token=False, out_indices=[0, 3]),
    'avg-featmap-no-cls': dict(out_type='avg_featmap', with_cls_token=False),
    'raw-no-cls': dict(out_type='raw', with_cls_token=False),
    'layer-scale': dict(layer_scale_init_value=0.3, qkv_bias=False),
    'no-final-norm': dict(final_norm=False, out_type='raw'),
    'pre-norm': dict(pre_norm=True, interpolate_mode='bilinear'),
    'three-fcs': dict(layer_cfgs=dict(num_fcs=3, act_cfg=dict(type='ReLU'))),
    'swiglu': dict(layer_cfgs=[dict(ffn_type='swiglu_fused'), {}, {}, {}]),
    'patch-overlap': dict(patch_cfg=dict(kernel_size=9, stride=6, padding=2)),
}
SWIN_VARIANTS = {
    'default': dict(),
    'pad-small': dict(pad_small_map=True),
    'abs-pos': dict(use_abs_pos_embed=True),
    'after-downsample': dict(out_after_downsample=True),
    'no-norm': dict(norm_cfg=None),
    'one-output': dict(out_indices=(1,)),
    'merging': dict(stage_cfgs=dict(downsample_cfg=dict(kernel_size=3, stride=2))),
    'blocks': dict(stage_cfgs=[dict(block_cfgs=dict(ffn_ratio=2.0, attn_cfgs=dict(qk_scale=0.9))), dict()]),
    'no-qkv-bias': dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(qkv_bias=False)))),
}
VIT_SIZES = [(32, 40), (37, 51), (8, 8)]
SWIN_SIZES = [(32, 32), (37, 51)]
# Maps of these are smaller than the window of 4 in the second or in both stages.
SWIN_SMALL_SIZES = [(16, 16), (5, 7), (40, 24)]


def pair(stock_class, our_class, settings):
    """The stock model with random weights, and ours that loaded them."""
    theirs = randomize(stock_class(**copy.deepcopy(settings)))
    ours = our_class(**copy.deepcopy(settings))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    return theirs.double(), ours.double().eval()


def vit_pair(**settings):
    defaults = dict(arch=VIT_ARCH, img_size=(32, 40), patch_size=8)
    return pair(stock.VisionTransformer, VisionTransformer, {**defaults, **settings})


def swin_pair(**settings):
    defaults = dict(arch=SWIN_ARCH, img_size=32, window_size=4, out_indices=(0, 1))
    return pair(stock.SwinTransformer, SwinTransformer, {**defaults, **settings})


def assert_same_outputs(theirs, ours, x, tolerance):
    expected, got = theirs(x), ours(x)
    assert len(expected) == len(got) > 0
    for e, g in zip(expected, got, strict=True):
        assert g.shape == e.shape
        assert (g - e).abs().max() <= tolerance * e.abs().max()


def check(theirs, ours, size):
    x = images(*size)
    assert_same_outputs(theirs, ours, x, 1e-12)
    with fused_attention(False):
        assert_same_outputs(theirs, ours, x, 1e-12)


@pytest.mark.parametrize('variant', VIT_VARIANTS)
def test_vit_outputs(variant):
    theirs, ours = vit_pair(**VIT_VARIANTS[variant])
    for size in VIT_SIZES:
        check(theirs, ours, size)


@pytest.mark.parametrize('variant', SWIN_VARIANTS)
def test_swin_outputs(variant):
    theirs, ours = swin_pair(**SWIN_VARIANTS[variant])
    for size in [*SWIN_SIZES, *(SWIN_SMALL_SIZES if variant == 'pad-small' else [])]:
        check(theirs, ours, size)


@pytest.mark.parametrize('make', [vit_pair, swin_pair])
def test_gradients(make):
    theirs, ours = make()
    x = images(37, 51)
    for model in (theirs, ours):
        sum(out.square().sum() for out in model(x)).backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('make', [vit_pair, swin_pair])
def test_layer_depths(make):
    theirs, ours = make()
    for name in [f'backbone.{n}' for n in ours.state_dict()] + ['head.fc.weight']:
        assert ours.get_layer_depth(name, 'backbone.') == theirs.get_layer_depth(name, 'backbone.')


DEPTHS = {
    pit: {
        'transformers.2.pool.fc.weight': 3,
        'pos_embed': 0,
        'cls_token': 0,
        'patch_embed.conv.bias': 0,
        'norm.bias': 5,
    },
    swin_v2: {'stages.1.downsample.reduction.weight': 2, 'patch_embed.norm.weight': 0, 'norm1.weight': 5},
    partial(vit, plugs='registers'): {'plugs.registers.prefix.register_tokens': 0},
    partial(vit, num_storage_tokens=2, untied_norms=True): {'storage_tokens': 0, 'prefix_norm.weight': 5},
}


@pytest.mark.parametrize('host', DEPTHS)
def test_depths_of_what_lies_between_blocks_and_before_them(host):
    """What lies before the blocks is frozen with the first stage."""
    model, frozen = host(), host(frozen_stages=1)
    for name, depth in DEPTHS[host].items():
        assert model.get_layer_depth(f'backbone.{name}', 'backbone.') == (depth, 6)
        assert depth or not frozen.get_parameter(name).requires_grad


@pytest.mark.parametrize('make', [vit_pair, swin_pair])
def test_frozen_parameters(make):
    theirs, ours = make(frozen_stages=1)
    theirs.train()
    ours.train()
    expected = {name: p.requires_grad for name, p in theirs.named_parameters()}
    assert {name: p.requires_grad for name, p in ours.named_parameters()} == expected
    assert not all(expected.values())


@pytest.mark.parametrize('host', [swin, swin_v2])
@pytest.mark.parametrize('use_abs_pos_embed', [True, False])
def test_swins_freeze_the_positions_as_mmdet_and_mmseg_do(host, use_abs_pos_embed):
    settings = dict(use_abs_pos_embed=use_abs_pos_embed, drop_rate=0.5)
    model = host(**settings, frozen_stages=0).train()
    embedding = [name for name, _ in model.named_parameters() if model.get_layer_depth(name)[0] == 0]
    assert ('absolute_pos_embed' in embedding) == use_abs_pos_embed
    assert not any(model.get_parameter(name).requires_grad for name in embedding)
    assert not model.drop_after_pos.training
    free = host(**settings, frozen_stages=-1).train()
    assert all(p.requires_grad for p in free.parameters()) and free.drop_after_pos.training


def test_position_tables_of_other_sizes_load_alike():
    source = randomize(stock.VisionTransformer(arch=VIT_ARCH, img_size=48, patch_size=8)).state_dict()
    theirs, ours = vit_pair()
    theirs.load_state_dict(copy.deepcopy(source))
    ours.load_state_dict(copy.deepcopy(source))
    torch.testing.assert_close(ours.pos_embed, theirs.pos_embed, rtol=0, atol=0)


def test_class_token_of_a_checkpoint_is_dropped_where_there_is_none():
    source = randomize(stock.VisionTransformer(arch=VIT_ARCH, img_size=(32, 40), patch_size=8)).state_dict()
    _, ours = vit_pair(with_cls_token=False, out_type='featmap')
    result = ours.load_state_dict(copy.deepcopy(source), strict=False)
    assert result.unexpected_keys == ['cls_token'] and not result.missing_keys
    torch.testing.assert_close(ours.pos_embed.float(), source['pos_embed'][:, 1:])


def test_swin_tables_of_other_windows_load():
    source = randomize(SwinTransformer(arch=SWIN_ARCH, window_size=7, out_indices=(1,))).state_dict()
    ours = SwinTransformer(arch=SWIN_ARCH, window_size=4, out_indices=(1,))
    ours.load_state_dict(source)
    table = ours.stages[0].blocks[0].attn.w_msa.relative_position_bias_table
    centre = source['stages.0.blocks.0.attn.w_msa.relative_position_bias_table'][13 * 13 // 2]
    torch.testing.assert_close(table[7 * 7 // 2], centre)


def test_old_swin_checkpoints_load():
    ours = SwinTransformer(arch=SWIN_ARCH, window_size=4, out_indices=(1,))
    source = {k.replace('norm1.', 'norm.') if k.startswith('norm1.') else k: v for k, v in ours.state_dict().items()}
    source['stages.0.blocks.1.attn.attn_mask'] = torch.zeros(1)
    assert 'norm.weight' in source
    ours.load_state_dict(source)


SIZED = {'vit': vit_pair, 'swiglu': partial(vit_pair, **VIT_VARIANTS['swiglu']), 'swin': swin_pair}


@pytest.mark.parametrize('pair', SIZED.values(), ids=SIZED)
def test_blocks_say_their_sizes_under_the_stock_names(pair):
    """Counters of FLOPs and viewers of attention maps read them."""
    theirs, ours = pair()
    found, known = 0, dict(ours.named_modules())
    for name, module in theirs.named_modules():
        for key in ('embed_dims', 'num_heads', 'head_dims', 'feedforward_channels', 'window_size', 'shift_size'):
            if type(vars(module).get(key)) is int and name in known:
                assert (key, getattr(known[name], key)) == (key, vars(module)[key]), name
                found += 1
    assert found > 20
    assert not hasattr(ours, 'layers') or all(layer.ffn.feedforward_channels for layer in ours.layers)


# --- arguments and start, of all hosts that mmpretrain has ---

SMALL = dict(arch=VIT_ARCH, img_size=32, patch_size=8)
MIXER = dict(arch=dict(embed_dims=96, num_layers=1, tokens_mlp_dims=64, channels_mlp_dims=192), img_size=64)
HOSTS = {
    'VisionTransformer': (SMALL, dict(arch='deit-tiny')),
    'SwinTransformer': (dict(arch=SWIN_ARCH, img_size=32, window_size=4, out_indices=(1,)), dict(arch='tiny')),
    'SwinTransformerV2': (None, None),
    'MlpMixer': (dict(SMALL, arch=MIXER_ARCH), MIXER),
    'MViT': (dict(arch=MVIT_ARCH), dict(arch=MVIT_ARCH | dict(embed_dims=48), use_abs_pos_embed=True)),
}


@pytest.mark.parametrize('name', HOSTS)
def test_arguments_and_architectures(name):
    """Those of the stock class in its order with its defaults, also by position; the others by name alone."""
    ours, theirs = getattr(backbones, name), getattr(stock, name)
    expected = [p for p in inspect.signature(theirs).parameters.values() if p.name != 'init_cfg']
    own = inspect.signature(ours).parameters.values()
    got = [p for p in own if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and p.name != 'init_cfg']
    assert [p.name for p in got] == [p.name for p in expected]
    different = {p.name for p, q in zip(got, expected, strict=True) if p.default != q.default}
    assert different == ({'pretrained_window_sizes'} if name == 'SwinTransformerV2' else set())
    assert theirs.arch_zoo.items() <= ours.arch_zoo.items()
    settings, _ = HOSTS[name]
    if settings:
        by_position = ours(*(settings.get(p.name, p.default) for p in expected))
        assert by_position.state_dict().keys() == ours(**settings).state_dict().keys()


@pytest.mark.parametrize('name', [name for name, (_, settings) in HOSTS.items() if settings])
def test_initial_weights_have_the_stock_distribution(name):
    models = [getattr(module, name)(**HOSTS[name][1]) for module in (backbones, stock)]
    for model in models:
        torch.manual_seed(0)
        model.init_weights()
    for (key, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a.std(), b.std(), rtol=0.3, atol=3e-3, msg=key)
