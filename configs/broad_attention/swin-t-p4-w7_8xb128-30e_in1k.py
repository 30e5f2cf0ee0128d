# ImageNet-1k fine-tuning of Swin-T.
# The paper's figures: top-1 81.3, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/swin-t-p4-w7_8xb128-30e_in1k.py
_base_ = ['../_base_/models/swin-t-p4-w7.py', '../_base_/recipes/finetune_swin_in1k.py']
model = dict(
    init_cfg=dict(_delete_=True, type='vitplug.Pretrained', checkpoint='checkpoints/swin_tiny_patch4_window7_224.pth')
)
