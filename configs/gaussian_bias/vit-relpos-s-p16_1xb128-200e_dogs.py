# Stanford Dogs classification with ViT-S (R).
# The paper's figures: top-1 81.535 (Table 3); validation top-1 82.777 (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16_1xb128-200e_dogs.py
_base_ = [
    '../_base_/models/vit-relpos_finetune.py',
    '../_base_/datasets/pets_gab.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(head=dict(num_classes=120))
data_root = 'data/stanford_dogs'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py dogs data/stanford_dogs')
data_preprocessor = dict(num_classes=120)
images = dict(dataset=dict(data_root=data_root, data_prefix='Images'))
train_dataloader = val_dataloader = test_dataloader = images
# The checkpoint of the best validation accuracy is kept, for a test afterwards.
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1'))
