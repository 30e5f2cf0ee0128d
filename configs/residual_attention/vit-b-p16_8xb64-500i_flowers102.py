# Flowers-102 classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-500i_flowers102.py
_base_ = 'vit-b-p16_8xb64-500i_pets.py'
model = dict(head=dict(num_classes=102))
data_preprocessor = dict(num_classes=102)
images = dict(type='Flowers102', data_root='data/flowers102')
train_dataloader = val_dataloader = test_dataloader = dict(dataset=images)
