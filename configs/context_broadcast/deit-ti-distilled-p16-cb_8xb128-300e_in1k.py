# ImageNet-1k classification with a distilled DeiT-Ti and Context Broadcasting.
# The paper's figures: top-1 74.7, top-5 92.3; ImageNet-V2 top-1 62.5; ImageNet-ReaL top-1 82.3 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-distilled-p16-cb_8xb128-300e_in1k.py
# Differs from deit-ti-distilled-p16_8xb128-300e_in1k.py in: model.backbone.plugs, train_dataloader.sampler.type.
_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Appendix A.3 of the paper: no repeated augmentation for ViT-Ti and ViT-S with CB.
model = dict(backbone=dict(arch='deit-t', plugs=[dict(type='ContextBroadcast')]), head=dict(in_channels=192))
