# ImageNet-1k fine-tuning of LVT with token labels and MixToken.
# The paper's figures: top-1 74.8, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/lvt_8xb128-30e_in1k.py
_base_ = [
    '../_base_/models/lvt.py',
    '../_base_/datasets/imagenet_bs128_token-labels-s7_224.py',
    '../_base_/schedules/finetune_swin_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/lvt_imagenet.pth.tar'))
