# Caltech-101 classification with ViT-S (R).
# The paper's figures: top-1 88.403 (Table 3); validation top-1 89.959 (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16_1xb128-200e_caltech101.py
_base_ = [
    '../_base_/models/vit-relpos_finetune.py',
    '../_base_/datasets/pets_gab.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(head=dict(num_classes=102))
# With the background class.
data_root = 'data/caltech-101'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py caltech101 data/caltech-101')
data_preprocessor = dict(num_classes=102)
images = dict(dataset=dict(data_root=data_root, data_prefix='101_ObjectCategories'))
train_dataloader = val_dataloader = test_dataloader = images
# The checkpoint of the best validation accuracy is kept, for a test afterwards.
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1'))
