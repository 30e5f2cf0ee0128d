# Mask R-CNN on a plain ViT-B. Blocks attend in windows of 14 x 14, every third block globally. The pyramid is computed
# from the last map only. The heads have layer norms because batches are small.
_base_ = 'mask-rcnn_swin-s-p4-w7_fpn.py'
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
