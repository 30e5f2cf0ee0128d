# Mixer-S/16: 8 blocks of width 512, MLPs of width 256 over the tokens and 2048 over the channels. The head is
# initialised with zeros, as in the authors' code and in timm, whose norms have eps=1e-6.
_base_ = 'classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.MlpMixer',
        arch='s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        norm_cfg=dict(type='LN', eps=1e-6),
    ),
    neck=dict(_delete_=True, type='GlobalAveragePooling', dim=1),
    head=dict(
        type='LinearClsHead', in_channels=512, init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.0)
    ),
)
