# ImageNet-1k classification with DeiT-Ti and Context Broadcasting.
# The paper's figures: top-1 73.2, top-5 91.7; ImageNet-V2 top-1 60.9; ImageNet-ReaL top-1 80.9 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-p16-cb_8xb128-300e_in1k.py
# Differs from deit-ti-p16_8xb128-300e_in1k.py in: model.backbone.plugs, train_dataloader.sampler.type.
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Appendix A.3 of the paper: no repeated augmentation for ViT-Ti and ViT-S with CB.
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=192, num_layers=12, num_heads=3, feedforward_channels=768),
        plugs=[dict(type='ContextBroadcast')],
    ),
    head=dict(in_channels=192),
)
