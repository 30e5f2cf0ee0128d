# ImageNet-1k fine-tuning at 384 x 384 of the host of Refined-ViT-M.
# python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-30e_in1k-384x384.py
# Pre-trained by: python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half_384.py',
    '../_base_/schedules/finetune_size_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=420, num_layers=32, num_heads=12, feedforward_channels=1260),
        drop_path_rate=0.1 * 32 / 12,
        img_size=384,
    ),
    head=dict(in_channels=420),
    init_cfg=dict(
        _delete_=True,
        type='vitplug.Pretrained',
        checkpoint='work_dirs/convstem-vit-m-p16_8xb64-300e_in1k/epoch_300.pth',
    ),
)
