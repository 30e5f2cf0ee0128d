# ImageNet-1k classification with a distilled DeiT-S and Context Broadcasting.
# The paper's figures: top-1 81.3, top-5 95.6; ImageNet-V2 top-1 70.2; ImageNet-ReaL top-1 87.0 (Table 6).
# python tools/train.py configs/context_broadcast/deit-s-distilled-p16-cb_8xb128-300e_in1k.py
# Differs from deit-s-distilled-p16_8xb128-300e_in1k.py in: model.backbone.plugs, train_dataloader.sampler.type.
_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Appendix A.3 of the paper: no repeated augmentation for ViT-Ti and ViT-S with CB.
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
