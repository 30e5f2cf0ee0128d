# ViTDet's Mask R-CNN on a plain ViT-B, trained on COCO for 100 epochs of 64 images with large-scale jitter.
_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    'mmdet::_base_/default_runtime.py',
    'hooks.py',
]
# Blocks attend in windows of 14 x 14, every third block globally. The pyramid is computed from the last map only. The
# heads have layer norms because batches are small.
norm_cfg = dict(type='vitplug.LayerNorm2d', eps=1e-6)
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.VisionTransformer',
        arch='base',
        img_size=1024,
        patch_size=16,
        drop_path_rate=0.1,
        window_size=14,
        global_blocks=[2, 5, 8, 11],
        with_cls_token=False,
        final_norm=False,
        out_type='featmap',
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/mae_pretrain_vit_base.pth',
            reset=['cls_token'],  # windows have no place for it
        ),
    ),
    neck=dict(
        _delete_=True,
        type='vitplug.SimpleFeaturePyramid',
        in_channels=768,
        out_channels=256,
        norm_cfg=norm_cfg,
        num_outs=5,
    ),
    rpn_head=dict(num_convs=2),
    roi_head=dict(
        bbox_head=dict(type='Shared4Conv1FCBBoxHead', conv_out_channels=256, norm_cfg=norm_cfg),
        mask_head=dict(norm_cfg=norm_cfg),
    ),
)

# Scale 0.1 to 2, then a crop of 1024 x 1024.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True, poly2mask=False),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomResize', scale=(1024, 1024), ratio_range=(0.1, 2.0), keep_ratio=True),
    dict(
        type='RandomCrop',
        crop_type='absolute_range',
        crop_size=(1024, 1024),
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-2, 1e-2)),
    dict(type='Pad', size=(1024, 1024), pad_val=dict(img=(114, 114, 114))),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(1024, 1024), keep_ratio=True),
    dict(type='Pad', size=(1024, 1024), pad_val=dict(img=(114, 114, 114))),
    *_base_.test_pipeline[-2:],  # the annotations, at the original size
]
train_dataloader = dict(
    batch_size=4, num_workers=4, sampler=dict(type='InfiniteSampler'), dataset=dict(pipeline=train_pipeline)
)
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

# Layer-wise learning rate decay. The learning rate is divided by 10 after 8/9 and 26/27 of the training.
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='vitplug.LayerDecayOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(
        layer_decay_rate=0.7,
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'storage_tokens': dict(decay_mult=0.0),
        },
    ),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=184375, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', milestones=[163889, 177546], gamma=0.1, by_epoch=False, begin=0, end=184375),
]
auto_scale_lr = dict(base_batch_size=64)

default_hooks = dict(
    _base_.pop('vitplug_hooks'),
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(type='vitplug.CheckpointHook', by_epoch=False, interval=5000, max_keep_ckpts=2),
)
log_processor = dict(by_epoch=False)
env_cfg = dict(dist_cfg=dict(timeout=1800))
randomness = dict(seed=0)
