# Oxford-IIIT Pet classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-500i_pets.py
_base_ = [
    '../_base_/models/revit-b-p16_finetune.py',
    '../_base_/datasets/pets_bs64_224.py',
    '../_base_/schedules/sgd_500i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
model = dict(head=dict(num_classes=37))
