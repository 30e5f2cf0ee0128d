# Mask R-CNN with FPN on MViTv2-T with the windows of detectron2's: 56, 28, 14 and 7 tokens, padding shown.
_base_ = 'mask-rcnn_swin-s-p4-w7_fpn.py'
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
