# ImageNet-1k fine-tuning of T2T-ViT-7.
# The paper's figures: top-1 71.7, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/t2t-vit-7_8xb128-30e_in1k.py
_base_ = [
    '../_base_/models/t2t-vit-7.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/finetune_swin_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/71.7_T2T_ViT_7.pth.tar'))
# As in T2T-ViT's code, the test crop is 0.9 of an image.
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 248
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
