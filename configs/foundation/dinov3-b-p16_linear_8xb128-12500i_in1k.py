# ImageNet-1k classification with a linear head on the class token of frozen DINOv3-B.
# python tools/train.py configs/foundation/dinov3-b-p16_linear_8xb128-12500i_in1k.py
_base_ = [
    '../_base_/models/linear_dinov3-b-p16_classifier.py',
    '../_base_/datasets/imagenet_bs128_linear_224.py',
    '../_base_/schedules/linear_12500i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
