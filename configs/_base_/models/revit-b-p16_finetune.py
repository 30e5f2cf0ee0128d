# ViT-B without class token from DeiT-B's ImageNet-1k weights, without Mixup, label smoothing and stochastic depth. The
# new head is initialised to zero, as in ViT's fine-tuning.
_base_ = 'revit-b-p16.py'
model = dict(
    backbone=dict(
        drop_path_rate=0.0,
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth',
            reset=['cls_token'],  # DeiT-B has one
        ),
    ),
    head=dict(
        loss=dict(_delete_=True, type='CrossEntropyLoss'),
        init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.0),
    ),
    train_cfg=None,
)
