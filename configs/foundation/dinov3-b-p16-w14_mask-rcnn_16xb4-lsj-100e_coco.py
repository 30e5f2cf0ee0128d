# COCO instance segmentation with Mask R-CNN on DINOv3-B, fine-tuned with windows.
# python tools/train.py configs/foundation/dinov3-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = ['../_base_/vitdet.py', '../_base_/models/dinov3-b-p16.py']
# Rotary positions depend on offsets alone, so windows take them as they are.
dinov3 = _base_.pop('dinov3')
model = dict(
    backbone=dict(
        dinov3,
        _delete_=True,
        img_size=1024,
        drop_path_rate=0.1,
        window_size=14,
        global_blocks=[2, 5, 8, 11],
        with_cls_token=False,
        num_storage_tokens=0,
        final_norm=False,
        out_type='featmap',
        init_cfg=dict(dinov3.init_cfg, reset=['cls_token', 'storage_tokens']),  # windows have no place for them
    )
)
