# ImageNet-1k fine-tuning of Swin-S.
# The paper's figures: top-1 83.0, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/swin-s-p4-w7_8xb128-30e_in1k.py
_base_ = ['../_base_/models/swin-s-p4-w7.py', '../_base_/recipes/finetune_swin_in1k.py']
model = dict(
    init_cfg=dict(_delete_=True, type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth')
)
