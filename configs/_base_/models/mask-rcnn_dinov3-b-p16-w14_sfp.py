# ViTDet's Mask R-CNN on DINOv3-B/16, fine-tuned. Blocks attend in windows of 14 x 14, every third block globally.
# Rotary positions depend on offsets alone, so windows take them as they are.
_base_ = 'mask-rcnn_vit-b-p16_sfp.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.FoundationTransformer',
        arch='dinov3-b',
        img_size=1024,
        drop_path_rate=0.1,
        window_size=14,
        global_blocks=[2, 5, 8, 11],
        with_cls_token=False,
        num_storage_tokens=0,
        final_norm=False,
        out_type='featmap',
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/dinov3_vitb16_pretrain_lvd1689m-73cec8be.pth',
            reset=['cls_token', 'storage_tokens'],  # windows have no place for them
        ),
    ),
)
