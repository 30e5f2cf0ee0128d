# ImageNet-1k fine-tuning at 448 x 448 of the host of Refined-ViT-L and Refiner, Refined-ViT-L.
# The paper's figures: top-1 85.9, 98.0 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1 90.1 (Table 7); top-1
# 85.94 (Table 5); top-1 86 (section 4.3).
# python tools/train.py configs/refiner/convstem-vit-l-p16-refiner_8xb64-30e_in1k-448x448.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-l-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-l-p16_8xb64-30e_in1k-448x448.py'
model = dict(
    backbone=dict(plugs=[dict(type='Refiner', share=1)]),
    init_cfg=dict(checkpoint='work_dirs/convstem-vit-l-p16-refiner_8xb64-300e_in1k/epoch_300.pth'),
)
