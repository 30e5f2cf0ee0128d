# DINOv3-B/16 with its released weights, which models take by `_base_.pop('dinov3')`.
dinov3 = dict(
    type='vitplug.FoundationTransformer',
    arch='dinov3-b',
    init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/dinov3_vitb16_pretrain_lvd1689m-73cec8be.pth'),
)
