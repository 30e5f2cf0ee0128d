# COCO instance segmentation with Cascade Mask R-CNN on Swin-T.
# python tools/train.py configs/residual_attention/swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py
_base_ = '../_base_/coco_3x.py'
# The box heads have four convolutions, one linear layer and a GIoU loss.
# Batch norms are synchronised between processes.
sync_bn = 'torch'
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='CascadeRCNN',
    backbone=dict(
        type='vitplug.SwinTransformer',
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_tiny_patch4_window7_224.pth'),
    ),
    rpn_head=dict(loss_bbox=dict(type='SmoothL1Loss', beta=1.0 / 9.0)),
    roi_head=dict(
        type='CascadeRoIHead',
        num_stages=3,
        stage_loss_weights=[1, 0.5, 0.25],
        bbox_head=[
            dict(
                type='ConvFCBBoxHead',
                num_shared_convs=4,
                num_shared_fcs=1,
                in_channels=256,
                conv_out_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                num_classes=80,
                bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_means=[0.0, 0.0, 0.0, 0.0], target_stds=std),
                reg_class_agnostic=False,
                reg_decoded_bbox=True,
                norm_cfg=norm_cfg,
                loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
                loss_bbox=dict(type='GIoULoss', loss_weight=10.0),
            )
            for std in ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
        ],
    ),
    train_cfg=dict(
        rpn=dict(allowed_border=0),
        rpn_proposal=dict(max_per_img=2000),
        rcnn=[
            dict(
                assigner=dict(
                    type='MaxIoUAssigner',
                    pos_iou_thr=iou,
                    neg_iou_thr=iou,
                    min_pos_iou=iou,
                    match_low_quality=False,
                    ignore_iof_thr=-1,
                ),
                sampler=dict(type='RandomSampler', num=512, pos_fraction=0.25, neg_pos_ub=-1, add_gt_as_proposals=True),
                mask_size=28,
                pos_weight=-1,
                debug=False,
            )
            for iou in (0.5, 0.6, 0.7)
        ],
    ),
)
# A linear decay to zero, as the paper's section 4.2 says.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=1000),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=True, begin=0, end=36, convert_to_iter_based=True),
]
