# ImageNet-1k fine-tuning at 384 x 384 of the host of Refined-ViT-S and Refiner, Refined-ViT-S.
# The paper's figures: top-1 84.6, 24.5 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1 88.9 (Table 7).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner_8xb64-30e_in1k-384x384.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-s-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb64-30e_in1k-384x384.py'
model = dict(
    backbone=dict(plugs=[dict(type='Refiner', share=1)]),
    init_cfg=dict(checkpoint='work_dirs/convstem-vit-s-p16-refiner_8xb64-300e_in1k/epoch_300.pth'),
)
