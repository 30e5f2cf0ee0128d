# ImageNet-1k classification with DeiT-Ti and Context Broadcasting.
# The paper's figures: top-1 73.2, top-5 91.7; ImageNet-V2 top-1 60.9; ImageNet-ReaL top-1 80.9 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-p16-cb_8xb128-300e_in1k.py
# Differs from deit-ti-p16_8xb128-300e_in1k.py in: model.backbone.plugs, train_dataloader.sampler.type.
_base_ = ['../_base_/models/deit-ti-p16.py', '../_base_/recipes/deit_in1k_unrepeated.py']
# Appendix A.3 of the paper: no repeated augmentation for ViT-Ti and ViT-S with CB.
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
