# ADE20K segmentation with UPerNet on DeiT-S and scaled Context Broadcasting, CB_S.
# The paper's figures: mIoU 43.1 (Table 7).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-scaled_upernet_8xb2-160k_ade20k-512x512.py
# Pre-trained by: python tools/train.py configs/context_broadcast/deit-s-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ContextBroadcast', scaled=True)],
        init_cfg=dict(checkpoint='work_dirs/deit-s-p16-cb-scaled_8xb128-300e_in1k/epoch_300.pth'),
    )
)
