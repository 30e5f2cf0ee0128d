# ImageNet-1k fine-tuning of Swin-T.
# The paper's figures: top-1 81.3, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/swin-t-p4-w7_8xb128-30e_in1k.py
_base_ = [
    '../_base_/models/swin.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/finetune_swin_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    init_cfg=dict(_delete_=True, type='vitplug.Pretrained', checkpoint='checkpoints/swin_tiny_patch4_window7_224.pth'),
)
