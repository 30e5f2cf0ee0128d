# ADE20K segmentation with UPerNet on DeiT-B and Context Broadcasting.
# The paper's figures: mIoU 45.1 (Table 7).
# python tools/train.py configs/context_broadcast/deit-b-p16-cb_upernet_8xb2-40k_ade20k-512x512.py
# Pre-trained by: python tools/train.py configs/context_broadcast/deit-b-p16-cb_8xb128-300e_in1k.py
_base_ = 'deit-b-p16_upernet_8xb2-40k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ContextBroadcast')],
        init_cfg=dict(checkpoint='work_dirs/deit-b-p16-cb_8xb128-300e_in1k/epoch_300.pth'),
    )
)
