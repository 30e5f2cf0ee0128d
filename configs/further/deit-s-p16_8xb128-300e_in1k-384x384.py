# ImageNet-1k classification with DeiT-S, tested at 384 x 384.
# The paper's figures: top-1 79.4, DeiT-III-S of 400 epochs.
# python tools/train.py configs/further/deit-s-p16_8xb128-300e_in1k-384x384.py
_base_ = 'deit-s-p16_8xb128-300e_in1k.py'
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 438
test_pipeline[2].crop_size = 384
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
