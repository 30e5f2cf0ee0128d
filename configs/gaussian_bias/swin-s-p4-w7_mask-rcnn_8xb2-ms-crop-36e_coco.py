# COCO instance segmentation with Mask R-CNN on Swin-S in mixed precision (float16), as the supplement says.
# The paper's figures: box AP 48.12, mask AP 43.03 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7_mask-rcnn_8xb2-ms-crop-36e_coco.py
_base_ = '../_base_/coco_3x.py'
model = dict(
    backbone=dict(
        type='vitplug.SwinTransformer',
        depths=[2, 2, 18, 2],
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth'),
    ),
)
optim_wrapper = dict(type='AmpOptimWrapper')
