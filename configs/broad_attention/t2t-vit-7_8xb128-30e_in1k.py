# ImageNet-1k fine-tuning of T2T-ViT-7.
# The paper's figures: top-1 71.7, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/t2t-vit-7_8xb128-30e_in1k.py
_base_ = [
    '../_base_/models/t2t-vit-7.py',
    '../_base_/datasets/imagenet_bs128_t2t_224.py',
    '../_base_/schedules/finetune_swin_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/71.7_T2T_ViT_7.pth.tar'))
