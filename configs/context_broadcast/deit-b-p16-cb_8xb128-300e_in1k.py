# ImageNet-1k classification with DeiT-B and Context Broadcasting.
# The paper's figures: top-1 82.0, top-5 95.8; ImageNet-V2 top-1 70.6; ImageNet-ReaL top-1 86.8 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-p16-cb_8xb128-300e_in1k.py
# Differs from deit-b-p16_8xb128-300e_in1k.py in: model.backbone.drop_path_rate, model.backbone.plugs, param_scheduler.
_base_ = ['../_base_/models/deit-b-p16.py', '../_base_/recipes/deit_in1k_warmup10.py']
# Appendix A.3 of the paper: ViT-B with CB has 10 epochs of warm-up, not 5, and more stochastic depth.
model = dict(backbone=dict(drop_path_rate=0.2, plugs=[dict(type='ContextBroadcast')]))
