"""Settings, images and checkpoints that hosts refuse: the argument, its value and what is allowed, one line a check.

Types and ranges of single arguments are left to Python, torch and mmcv.
"""

import pytest
import torch
from cases import LVT_ARCH, MVIT_ARCH, SWIN_ARCH, VIT_ARCH, images, lvt, mixer, mvit, pit, swin, swin_v2, t2t, vit

from vitplug.backbones import FoundationTransformer, SwinTransformer, VisionTransformer

STOCK_SWIN = dict(embed_dims=12, depths=(2, 2), num_heads=(1, 2), strides=(4, 2), window_size=4, out_indices=(0, 1))
STOCK_VIT = dict(embed_dims=24, num_layers=3, num_heads=3, img_size=(32, 40), patch_size=8)
CHECKS = [
    # shared by the hosts
    (vit, dict(arch='deit-huge'), "arch='deit-huge': unknown; choose from .*deit-tiny"),
    (swin, dict(arch=7), 'arch=7: expected a name or a dict'),
    (mvit, dict(arch=dict(embed_dims=8)), r"expected a name or a dict with the keys \['downscale_indices', "),
    (lvt, dict(arch={**LVT_ARCH, 'depths': [1, 1]}), 'arch: .* differ in length'),
    (swin, dict(arch={**SWIN_ARCH, 'num_heads': [5, 4]}), 'embed_dims=12 is no multiple of num_heads=5'),
    (t2t, dict(out_type='cls_token', with_cls_token=False), 'needs with_cls_token=True'),
    (pit, dict(out_type='tokens'), "out_type='tokens': expected one of .*featmap"),
    (vit, dict(out_indices=[0, 4]), r'out_indices=\[0, 4\]: \[4\] outside; .* 0 to 3'),
    (vit, dict(frozen='host', frozen_stages=1), "frozen_stages=1 beside frozen='host': .*keep one"),
    (swin_v2, dict(frozen_stages=2), r'frozen_stages=2: expected an integer from -1 \(none\) to 1'),
    (mixer, dict(img_size='224'), "img_size='224'.* positive integer"),
    (vit, dict(layer_cfgs=[dict()]), 'layer_cfgs has 1 entries: expected one for all, or a list of 4'),
    (swin_v2, dict(window_size=[4]), 'window_size has 1 entries: expected one for all, or a list of 2'),
    # of one
    (vit, dict(layer_cfgs=dict(with_attn=False, with_ffn=False)), 'with_attn=False and with_ffn=False leave nothing'),
    (vit, dict(img_size=(6, 40), patch_cfg=dict(padding=0)), r'image size \(6, 40\) is smaller .*, or patch_cfg='),
    (pit, dict(img_size=4), r'smaller than the patch size \(6, 6\): use larger images or smaller patches$'),
    (vit, dict(window_size=7), 'window_size=7: .*cls_token.* lie in no window; set with_cls_token=False'),
    (vit, dict(with_cls_token=False, window_size=0), 'window_size=0: expected .* from 1, or None for global attention'),
    (swin_v2, dict(window_size=[4, 2.5]), 'window_size=2.5: expected an integer of at least 1'),
    (vit, dict(stem='conv', patch_size=7), "stem='conv' halves the image"),
    (vit, dict(rotary='axial'), r"rotary: mode='axial': expected one of \['dinov3', 'eva02'\]"),
    (vit, dict(rotary='dinov3', arch={**VIT_ARCH, 'num_heads': 4}), 'rotary: heads are 6 wide: expected a multiple of'),
    (vit, dict(with_cls_token=False, num_storage_tokens=1, window_size=3), 'storage_token_0.* lie in no window'),
    (swin, dict(stage_cfgs=dict(block_cfgs=dict(attn_cfgs=dict(shift_size=4)))), 'shift_size=4: expected 0 to 3, less'),
    (mvit, dict(arch=MVIT_ARCH | dict(downscale_indices=[3, 1])), r'downscale_indices=\[3, 1\]: expected ascending'),
    (mvit, dict(window_size=6), 'window_size=6: block 0 pools its windows of 6 tokens by 4, which leaves no'),
    # mmdet's and mmseg's arguments
    (SwinTransformer, dict(STOCK_SWIN, frozen_stages=0), 'frozen_stages=0: .* set 1 for the embedding and the first'),
    (SwinTransformer, dict(STOCK_SWIN, frozen_stages=3), 'frozen_stages=3: .* to 2, or -1 for none'),
    (SwinTransformer, dict(STOCK_SWIN, strides=(4, 2, 2)), r'strides=\(4, 2, 2\)'),
    (VisionTransformer, dict(STOCK_VIT, out_origin=True), 'out_origin=True: .*its outputs are those of blocks'),
    (FoundationTransformer, dict(arch='dinov4-b'), "arch='dinov4-b': unknown; choose from .*dinov3-{s,"),
]


@pytest.mark.parametrize(('host', 'settings', 'message'), CHECKS, ids=[message[:40] for *_, message in CHECKS])
def test_settings(host, settings, message):
    with pytest.raises(ValueError, match=message):
        host(**settings)


def test_arguments_of_two_libraries():
    """Neither class' defaults would be meant. Swin V2 is no class of mmdet."""
    with pytest.raises(TypeError, match=r"\['depths', .*\] are .* of mmdet and mmseg; .* no argument \['norm_eval'\]"):
        SwinTransformer(**STOCK_SWIN, norm_eval=True)
    with pytest.raises(
        TypeError, match=r"\['mlp_ratio'\] are .* of mmseg; .* no argument \['layer_scale_init_value'\]"
    ):
        VisionTransformer(mlp_ratio=2, layer_scale_init_value=0.1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'attn_drop_rate'"):
        swin_v2(attn_drop_rate=0.1)


@pytest.mark.parametrize(
    ('host', 'shape', 'message'),
    [
        (vit, (1, 1, 32, 32), r'expected \(B, 3, H, W\), none of them 0, by in_channels=3'),
        (swin, (1, 3, 12, 40), r'the feature map \(3, 10\) is smaller than the window \(4\): set pad_small_map'),
        (t2t, (1, 3, 32, 2), r'image size \(32, 2\): expected at least 3 x 3 pixels'),
        (mixer, (1, 3, 40, 56), r'images of \(40, 56\): .* resize or crop the images to \(32, 48\), or'),
    ],
)
def test_images(host, shape, message):
    with pytest.raises(ValueError, match=message):
        host()(torch.zeros(shape))


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(name='block'), r"name='block': expected one of \['scores'"),
        (dict(name='maps'), r"found has no 'maps' of block 1, only \{'probs': \[1\]\}.*names=\['maps'\]"),
        (dict(image_size=(64, 64)), r'probs are of 1 windows and \(17, 17\) tokens, but images of \(64, 64\)'),
        (dict(query='dist_token'), r"query='dist_token': expected .* one of \['cls_token'\]"),
        (dict(query=(0, 32)), r'query=\(0, 32\): expected a pixel \(y, x\) of an image of \(32, 32\)'),
    ],
    ids=str,
)
def test_maps_on_images(settings, message):
    model = vit().double()
    _, found = model.forward_intermediates(images(32, 32), ('probs',), layers=[1])
    with pytest.raises(ValueError, match=message):
        model.maps_to_image(found, **{'layer': 1, 'image_size': (32, 32), **settings})


def test_maps_without_prefix_tokens_have_no_class_token():
    """Before: those of the first patch."""
    model = pit(plugs='broad').double()
    _, found = model.forward_intermediates(images(32, 32), ('broad_probs',))
    with pytest.raises(ValueError, match=r"query='cls_token': expected .* one of \[\]"):
        model.maps_to_image(found, next(iter(found['broad_probs'])), (32, 32), 'cls_token', 'broad_probs')


def test_intermediates():
    with pytest.raises(ValueError, match=r"names=\['attention'\]: no such intermediates; choose from .*probs"):
        vit().forward_intermediates(images(32, 40), 'attention')
    with pytest.raises(ValueError, match=r'layers=\[4\]: this backbone has blocks 0 to 3'):
        vit().forward_intermediates(images(32, 40), 'probs', layers=[4])
