# T2T-ViT-7 from its ImageNet-1k weights, without Mixup, label smoothing and stochastic depth. The new head is
# initialised to zero, as in ViT's fine-tuning.
_base_ = 't2t-vit-7.py'
model = dict(
    backbone=dict(
        drop_path_rate=0.0, init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/71.7_T2T_ViT_7.pth.tar')
    ),
    head=dict(
        loss=dict(_delete_=True, type='CrossEntropyLoss'),
        init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.0),
    ),
    train_cfg=None,
)
