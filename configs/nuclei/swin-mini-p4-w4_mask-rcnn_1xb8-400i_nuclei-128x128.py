# Instance segmentation of nuclei with Mask R-CNN on a small Swin Transformer, trained on crops of 128 x 128.
# python tools/train.py configs/nuclei/swin-mini-p4-w4_mask-rcnn_1xb8-400i_nuclei-128x128.py
_base_ = [
    '../_base_/models/mask-rcnn_swin-mini.py',
    '../_base_/datasets/nuclei.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmdet.py',
]
model = dict(
    backbone=dict(in_channels=3),
    # Most nuclei have 9 to 43 pixels in the resized images.
    rpn_head=dict(anchor_generator=dict(scales=[3], ratios=[0.5, 1.0, 2.0])),
    roi_head=dict(bbox_head=dict(num_classes=1), mask_head=dict(num_classes=1)),
    # Whole images have many more objects than the crops.
    test_cfg=dict(rpn=dict(nms_pre=1000, max_per_img=300), rcnn=dict(max_per_img=100)),
)
