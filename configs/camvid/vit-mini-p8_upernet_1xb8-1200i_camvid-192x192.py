# Road scenes of CamVid with the digits' UPerNet on a small ViT, in colour, trained on crops of 192 x 192.
# python tools/train.py configs/camvid/vit-mini-p8_upernet_1xb8-1200i_camvid-192x192.py
_base_ = [
    '../_base_/models/upernet_vit-mini.py',
    '../_base_/datasets/camvid.py',
    '../_base_/schedules/cosine_1200i.py',
    '../_base_/default_runtime_mmseg.py',
]
model = dict(
    data_preprocessor=dict(size=(192, 192)),
    backbone=dict(in_channels=3, img_size=192),
    # The digits' weights are for much background, which road scenes do not have.
    decode_head=dict(loss_decode=dict(_delete_=True, type='CrossEntropyLoss')),
)
# As in the digits' config: neck and head have twice the learning rate of the backbone.
heads = dict(lr_mult=2.0, decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'neck': heads, 'decode_head': heads}))
