# ImageNet-1k fine-tuning at 448 x 448 of the host of Refined-ViT-L.
# python tools/train.py configs/refiner/convstem-vit-l-p16_8xb64-30e_in1k-448x448.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-l-p16_8xb64-300e_in1k.py
_base_ = 'convstem-vit-l-p16_8xb64-30e_in1k-384x384.py'
model = dict(backbone=dict(img_size=448))
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1].scale = test_pipeline[1].scale = test_pipeline[2].crop_size = 448
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
