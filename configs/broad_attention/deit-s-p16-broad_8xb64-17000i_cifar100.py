# CIFAR-100 classification with DeiT-S and broad attention, BViT-22M.
# The paper's figures: top-1 89.9 (Table IV).
# python tools/train.py configs/broad_attention/deit-s-p16-broad_8xb64-17000i_cifar100.py
# Pre-trained by: python tools/train.py configs/broad_attention/deit-s-p16-broad_8xb64-300e_in1k.py
_base_ = 'deit-s-p16_8xb64-17000i_cifar100.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='BroadAttention')],
        init_cfg=dict(checkpoint='work_dirs/deit-s-p16-broad_8xb64-300e_in1k/epoch_300.pth'),
    )
)
