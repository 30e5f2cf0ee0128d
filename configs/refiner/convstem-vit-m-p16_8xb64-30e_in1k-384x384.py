# ImageNet-1k fine-tuning at 384 x 384 of the host of Refined-ViT-M.
# python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-30e_in1k-384x384.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-300e_in1k.py
_base_ = ['../_base_/models/convstem-vit-m-p16.py', '../_base_/recipes/refiner_in1k_384.py']
model = dict(
    backbone=dict(img_size=384),
    init_cfg=dict(
        _delete_=True,
        type='vitplug.Pretrained',
        checkpoint='work_dirs/convstem-vit-m-p16_8xb64-300e_in1k/epoch_300.pth',
    ),
)
