# ViT-S (R) as in vit-relpos.py, from its ImageNet-1k weights, without Mixup, label smoothing and stochastic depth.
_base_ = 'vit-relpos.py'
model = dict(
    backbone=dict(
        drop_path_rate=0.0,
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/vit_relpos_small_patch16_224.safetensors',
            # The paper trains a new position bias for every transfer.
            reset=['rel_pos_mlp'],
        ),
    ),
    head=dict(loss=dict(_delete_=True, type='CrossEntropyLoss')),
    train_cfg=None,
)
