# ImageNet-1k classification with the host of Refined-ViT-M.
# python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-300e_in1k.py
_base_ = ['../_base_/models/convstem-vit-m-p16.py', '../_base_/recipes/refiner_convstem_in1k.py']
# The same learning rate for 512 images per step.
auto_scale_lr = dict(base_batch_size=512)
