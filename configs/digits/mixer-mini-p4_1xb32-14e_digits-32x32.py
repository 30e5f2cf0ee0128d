# Digit classification with a small Mixer.
# python tools/train.py configs/digits/mixer-mini-p4_1xb32-14e_digits-32x32.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# A Mixer of 4 blocks and width 96 with 8 x 8 tokens, from patches that overlap by half.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.MlpMixer',
        arch=dict(embed_dims=96, num_layers=4, tokens_mlp_dims=48, channels_mlp_dims=192),
        img_size=32,
        patch_size=4,
        in_channels=1,
        patch_cfg=dict(kernel_size=8, padding=2),
    )
)
