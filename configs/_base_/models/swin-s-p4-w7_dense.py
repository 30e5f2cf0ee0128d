# Swin-S with its ImageNet-1k weights for dense tasks, which models take by `_base_.pop('swin')`.
swin = dict(
    type='vitplug.SwinTransformer',
    arch='small',
    out_indices=(0, 1, 2, 3),
    pad_small_map=True,
    init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth'),
)
