# ImageNet-1k classification with ViT-S (R).
# The paper's figures: top-1 80.576 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16_8xb288-400e_in1k.py
_base_ = [
    '../_base_/models/vit-relpos.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/gab_400e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# As in timm's vit_relpos_*, the test crop is 0.9 of an image.
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 248
train_dataloader = dict(batch_size=288)
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
