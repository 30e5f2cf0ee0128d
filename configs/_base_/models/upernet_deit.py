# UPerNet on DeiT-S as in XCiT. Transposed convolutions and pooling turn the maps after blocks 4, 6, 8 and 12 into a
# pyramid. For all sizes of DeiT the decoder has 512 channels, which gives the paper's parameter counts. Stochastic
# depth is that of XCiT's small model with 12 blocks.
_base_ = '../ade20k_160k.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.VisionTransformer',
        arch='deit-s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.05,
        out_indices=[3, 5, 7, 11],
        out_type='featmap',
        final_norm=False,
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/deit_small_patch16_224-cd65a155.pth'),
    ),
    neck=dict(
        type='Feature2Pyramid', embed_dim=384, rescales=[4, 2, 1, 0.5], norm_cfg=dict(type='SyncBN', requires_grad=True)
    ),
    decode_head=dict(in_channels=[384, 384, 384, 384]),
)
tokens = {name: dict(decay_mult=0.0) for name in ('pos_embed', 'cls_token', 'register_tokens')}
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=tokens))
