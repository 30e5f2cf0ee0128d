# PiT-B: blocks 3, 6, 4 of width 256, 512, 1024, patches of 14 x 14 with stride 7. Linear layers are initialised by
# torch's default, as in the authors' code.
_base_ = 'classifier.py'
model = dict(
    backbone=dict(type='vitplug.PoolingVisionTransformer', arch='b', img_size=224, drop_path_rate=0.1),
    head=dict(type='LinearClsHead', in_channels=1024, init_cfg=None),
)
