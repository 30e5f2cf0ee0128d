# CIFAR-100 classification with T2T-ViT-7 and broad attention, BT2T-ViT-7.
# python tools/train.py configs/broad_attention/t2t-vit-7-broad_8xb64-17000i_cifar100.py
# Pre-trained by: python tools/train.py configs/broad_attention/t2t-vit-7-broad_8xb128-30e_in1k.py
_base_ = 't2t-vit-7_8xb64-17000i_cifar100.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='BroadAttention')],
        init_cfg=dict(checkpoint='work_dirs/t2t-vit-7-broad_8xb128-30e_in1k/epoch_30.pth'),
    )
)
