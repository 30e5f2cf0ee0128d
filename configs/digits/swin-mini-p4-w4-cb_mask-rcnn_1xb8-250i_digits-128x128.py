# The demo's digit instance segmentation: Mask R-CNN on a small Swin with Context Broadcasting, and a short schedule.
# Reached segm mAP 0.625 on held-out digits in 290 s on one of 2 CPU cores, the other one training, too (one run).
# Differs from swin-mini-p4-w4-cb_mask-rcnn_1xb8-400i_digits-128x128.py in: param_scheduler, train_cfg.
# python tools/train.py configs/digits/swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py
_base_ = 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-400i_digits-128x128.py'
train_cfg = dict(max_iters=250, val_interval=250)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=250),
]
