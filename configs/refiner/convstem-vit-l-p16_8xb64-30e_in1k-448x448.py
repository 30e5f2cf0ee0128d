# ImageNet-1k fine-tuning at 448 x 448 of the host of Refined-ViT-L.
# python tools/train.py configs/refiner/convstem-vit-l-p16_8xb64-30e_in1k-448x448.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-l-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit-l-p16.py',
    '../_base_/datasets/imagenet_bs64_refiner_448.py',
    '../_base_/schedules/finetune_size_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(img_size=448),
    init_cfg=dict(
        _delete_=True,
        type='vitplug.Pretrained',
        checkpoint='work_dirs/convstem-vit-l-p16_8xb64-300e_in1k/epoch_300.pth',
    ),
)
