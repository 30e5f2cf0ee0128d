# Digit classification with a small Mixer and Context Broadcasting.
# python tools/train.py configs/digits/mixer-mini-p4-cb_1xb32-14e_digits-32x32.py
_base_ = 'mixer-mini-p4_1xb32-14e_digits-32x32.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
