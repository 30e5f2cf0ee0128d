# Mask R-CNN with FPN on a Swin Transformer of three stages, for images of about 128 pixels.
_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'
model = dict(
    data_preprocessor=dict(
        _delete_=True, type='DetDataPreprocessor', mean=[127.5], std=[64.0], pad_mask=True, pad_size_divisor=16
    ),
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=48, depths=[2, 2, 2], num_heads=[2, 4, 8]),
        img_size=128,
        in_channels=1,
        window_size=4,
        drop_path_rate=0.0,
        out_indices=(0, 1, 2),
        pad_small_map=True,
    ),
    neck=dict(in_channels=[48, 96, 192], out_channels=64, num_outs=3),
    rpn_head=dict(
        in_channels=64, feat_channels=64, anchor_generator=dict(scales=[4], ratios=[1.0, 1.5, 2.5], strides=[4, 8, 16])
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(
            roi_layer=dict(sampling_ratio=2), out_channels=64, featmap_strides=[4, 8], finest_scale=28
        ),
        bbox_head=dict(in_channels=64, fc_out_channels=256, num_classes=10, reg_class_agnostic=True),
        mask_roi_extractor=dict(
            roi_layer=dict(sampling_ratio=2), out_channels=64, featmap_strides=[4, 8], finest_scale=56
        ),
        mask_head=dict(num_convs=2, in_channels=64, conv_out_channels=64, class_agnostic=True, num_classes=10),
    ),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=128)),
        rpn_proposal=dict(nms_pre=300, max_per_img=100),
        rcnn=dict(sampler=dict(num=64)),
    ),
    test_cfg=dict(rpn=dict(nms_pre=300, max_per_img=100), rcnn=dict(max_per_img=50)),
)
