"""With ``plugs=[]`` the hosts are mmpretrain's: same keys, same numbers."""

import copy
import inspect
from functools import partial

import mmpretrain.models as stock
import pytest
import torch
from attention_oracle import gradients
from cases import MIXER_ARCH, MVIT_ARCH, SWIN_ARCH, VIT_ARCH, images, mixer, pit, randomize, swin, swin_v2, vit

from vitplug import backbones
from vitplug.attention import fused_attention
from vitplug.backbones import SwinTransformer

# mmpretrain wants all keys.
SWIN_V2_ARCH = dict(SWIN_ARCH, extra_norm_every_n_blocks=0)
# Settings of every host, and sizes of images.
HOSTS = {
    'VisionTransformer': (dict(arch=VIT_ARCH, img_size=(32, 40), patch_size=8), [(32, 40), (37, 51), (8, 8)]),
    'SwinTransformer': (dict(arch=SWIN_ARCH, img_size=32, window_size=4, out_indices=(0, 1)), [(32, 32), (37, 51)]),
    'SwinTransformerV2': (
        dict(arch=SWIN_V2_ARCH, img_size=32, window_size=4, out_indices=(0, 1), pretrained_window_sizes=[0, 0]),
        [(32, 32), (37, 51)],
    ),
    'MViT': (dict(arch=MVIT_ARCH, img_size=32, out_scales=[2]), [(32, 32), (48, 24), (37, 51), (64, 96)]),
    'MlpMixer': (dict(arch=MIXER_ARCH, img_size=(32, 48), patch_size=8), [(32, 48)]),
}
# Maps of these are smaller than the window of 4 in the second or in both stages.
SMALL = [(16, 16), (5, 7), (40, 24), (16, 80)]
VARIANTS = {
    'VisionTransformer': {
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
    },
    'SwinTransformer': {
        'default': dict(),
        'pad-small': dict(pad_small_map=True),
        'abs-pos': dict(use_abs_pos_embed=True),
        'after-downsample': dict(out_after_downsample=True),
        'no-norm': dict(norm_cfg=None),
        'one-output': dict(out_indices=(1,)),
        'merging': dict(stage_cfgs=dict(downsample_cfg=dict(kernel_size=3, stride=2))),
        'blocks': dict(stage_cfgs=[dict(block_cfgs=dict(ffn_ratio=2.0, attn_cfgs=dict(qk_scale=0.9))), dict()]),
        'no-qkv-bias': dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(qkv_bias=False)))),
    },
    'SwinTransformerV2': {
        'default': dict(),
        'pad-small': dict(pad_small_map=True, use_abs_pos_embed=True),
        'pretrained-windows': dict(window_size=[4, 2], pretrained_window_sizes=[6, 3]),
        'extra-norms': dict(arch={**SWIN_V2_ARCH, 'extra_norm_every_n_blocks': 2}, norm_cfg=None, out_indices=(1,)),
        'blocks': dict(stage_cfgs=[dict(block_cfgs=dict(ffn_ratio=2.0, attn_cfgs=dict(qkv_bias=False))), dict()]),
        'bias': dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(cpb_mlp_hidden_dims=8)))),
    },
    'MViT': {
        'default': dict(),
        'dims-in-mlp': dict(dim_mul_in_attention=False, out_scales=[1]),
        'abs-pos': dict(use_abs_pos_embed=True, interpolate_mode='bilinear'),
        'no-residual-pooling': dict(residual_pooling=False, qkv_bias=False),
        'no-relative-positions': dict(rel_pos_spatial=False),
        'kernel': dict(pool_kernel=(5, 3), adaptive_kv_stride=2),
        'factors': dict(dim_mul=3, head_mul=1, mlp_ratio=1.5),
        'patches': dict(patch_cfg=dict(kernel_size=4, stride=4)),
    },
    'MlpMixer': {
        'default': dict(),
        'other-layers': dict(out_indices=[-3, -1]),
        'overlap': dict(patch_cfg=dict(kernel_size=9, stride=6, padding=2)),
        'three-fcs': dict(layer_cfgs=dict(num_fcs=3), act_cfg=dict(type='ReLU')),
        'square': dict(img_size=20),  # padded to whole patches
    },
}


def pair(name, **settings):
    """The stock model with random weights, and ours that loaded them."""
    settings = {**HOSTS[name][0], **settings}
    theirs = randomize(getattr(stock, name)(**copy.deepcopy(settings)))
    ours = getattr(backbones, name)(**copy.deepcopy(settings))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    return theirs.double(), ours.double().eval()


vit_pair, swin_pair = (partial(pair, name) for name in ('VisionTransformer', 'SwinTransformer'))


@pytest.mark.parametrize(('name', 'variant'), [(name, variant) for name in VARIANTS for variant in VARIANTS[name]])
def test_outputs_and_gradients(name, variant):
    theirs, ours = pair(name, **VARIANTS[name][variant])
    sizes = [ours.fixed_size] if ours.fixed_size else HOSTS[name][1] + SMALL * (variant == 'pad-small')
    tolerance = 1e-11 if name == 'SwinTransformerV2' else 1e-12
    for size in sizes:
        x = images(*size)
        expected = theirs(x)
        for fused in (True, False):
            with fused_attention(fused):
                got = ours(x)
            for e, g in zip(expected, got, strict=True):
                assert g.shape == e.shape and (g - e).abs().max() <= tolerance * e.abs().max()
    named = dict(theirs.named_parameters())
    own = gradients(ours(x), [ours.get_parameter(n) for n in named])
    grads = zip(own, gradients(theirs(x), [*named.values()]), strict=True)
    for name, (got, expected) in zip(named, grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9, msg=name)


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
    partial(vit, num_storage_tokens=2): {'storage_tokens': 0, 'ln1.weight': 5},
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


def test_class_token_of_a_checkpoint_is_dropped_where_there_is_none():
    source = randomize(stock.VisionTransformer(arch=VIT_ARCH, img_size=(32, 40), patch_size=8)).state_dict()
    _, ours = vit_pair(with_cls_token=False, out_type='featmap')
    result = ours.load_state_dict(copy.deepcopy(source), strict=False)
    assert result.unexpected_keys == ['cls_token'] and not result.missing_keys
    torch.testing.assert_close(ours.pos_embed.float(), source['pos_embed'][:, 1:])


# --- arguments and start, of all hosts that mmpretrain has ---

MIXER = dict(arch=dict(embed_dims=96, num_layers=1, tokens_mlp_dims=64, channels_mlp_dims=192), img_size=64)
STARTS = {
    'VisionTransformer': dict(arch='deit-tiny'),
    'SwinTransformer': dict(arch='tiny'),
    'MlpMixer': MIXER,
    'MViT': dict(arch=MVIT_ARCH | dict(embed_dims=48), use_abs_pos_embed=True),
}


@pytest.mark.parametrize('name', HOSTS)
def test_arguments_and_architectures(name):
    """Those of the stock class in its order with its defaults; of Swin V2, which has Swin's, by name alone."""
    ours, theirs, is_v2 = getattr(backbones, name), getattr(stock, name), name == 'SwinTransformerV2'
    expected = [p for p in inspect.signature(theirs).parameters.values() if p.name != 'init_cfg']
    shared = inspect.signature(SwinTransformer).parameters if is_v2 else {}
    own = {**shared, **inspect.signature(ours).parameters}
    different = {p.name for p in expected if own[p.name].default != p.default}
    assert different == ({'pretrained_window_sizes'} if is_v2 else set())
    assert theirs.arch_zoo.items() <= ours.arch_zoo.items()
    settings = HOSTS[name][0]
    given = {p.name: settings.get(p.name, p.default) for p in expected}
    model = ours(**given) if is_v2 else ours(*given.values())
    assert model.state_dict().keys() == ours(**settings).state_dict().keys()


@pytest.mark.parametrize('name', STARTS)
def test_initial_weights_have_the_stock_distribution(name):
    models = [getattr(module, name)(**STARTS[name]) for module in (backbones, stock)]
    for model in models:
        torch.manual_seed(0)
        model.init_weights()
    for (key, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a.std(), b.std(), rtol=0.3, atol=3e-3, msg=key)


# --- MLP-Mixer ---


def test_one_map_of_the_mixer_for_dense_heads():
    tokens, model = mixer(out_type='tokens'), mixer(out_type='featmap', out_indices=[0, -1])
    model.load_state_dict(tokens.state_dict())
    x = images(32, 48, dtype=torch.float32)
    maps = model(x)
    assert [out.shape for out in maps] == [(2, 24, 4, 6)] * 2
    assert torch.equal(maps[1].flatten(2), tokens(x)[0])
