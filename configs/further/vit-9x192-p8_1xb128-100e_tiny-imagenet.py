# Tiny-ImageNet from scratch with a small ViT.
# The paper's figures: top-1 57.1.
# python tools/train.py configs/further/vit-9x192-p8_1xb128-100e_tiny-imagenet.py
_base_ = [
    '../_base_/models/vit-9x192.py',
    '../_base_/datasets/tiny_imagenet.py',
    '../_base_/schedules/lsa_100e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(img_size=64, patch_size=8), head=dict(num_classes=200))
