# COCO instance segmentation with Mask R-CNN on MViTv2-T.
# python tools/train.py configs/residual_attention/mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py
_base_ = '../_base_/coco_3x.py'
# MViTv2-T with the windows of detectron2's: 56, 28, 14 and 7 tokens, padding shown.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.MViT',
        arch='tiny',
        img_size=224,
        window_size=56,
        shows_padding=True,
        drop_path_rate=0.2,
        out_scales=(0, 1, 2, 3),
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/MViTv2_T_in1k.pyth'),
    )
)
train_dataloader = dict(batch_size=4)
tables = dict(decay_mult=0.0)
optim_wrapper = dict(
    optimizer=dict(lr=1.6e-4, weight_decay=0.1),
    paramwise_cfg=dict(custom_keys=dict(cls_token=tables, rel_pos_h=tables, rel_pos_w=tables)),
)
# A linear decay to zero, as the paper's section 4.2 says.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=True, begin=0, end=36, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=64)
