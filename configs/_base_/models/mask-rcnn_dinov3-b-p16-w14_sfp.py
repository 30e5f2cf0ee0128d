# ViTDet's Mask R-CNN on DINOv3-B/16, fine-tuned. Blocks attend in windows of 14 x 14, every third block globally.
# Rotary positions depend on offsets alone, so windows take them as they are.
_base_ = ['mask-rcnn_vit-b-p16_sfp.py', 'dinov3-b-p16.py']
model = dict(
    backbone=dict(
        _base_.pop('dinov3'),
        _delete_=True,
        img_size=1024,
        drop_path_rate=0.1,
        window_size=14,
        global_blocks=[2, 5, 8, 11],
        with_cls_token=False,
        num_storage_tokens=0,
        final_norm=False,
        out_type='featmap',
    ),
)
model['backbone']['init_cfg']['reset'] = ['cls_token', 'storage_tokens']  # windows have no place for them
