# ImageNet-1k fine-tuning at 384 x 384 of the host of Refined-ViT-L and Refiner, Refined-ViT-L.
# The paper's figures: top-1 85.7, 69.1 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1 89.7 (Table 7).
# python tools/train.py configs/refiner/convstem-vit-l-p16-refiner_8xb64-30e_in1k-384x384.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-l-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-l-p16_8xb64-30e_in1k-384x384.py'
model = dict(
    backbone=dict(plugs=[dict(type='Refiner', share=1)]),
    init_cfg=dict(checkpoint='work_dirs/convstem-vit-l-p16-refiner_8xb64-300e_in1k/epoch_300.pth'),
)
