# Digit classification with a small PiT and Context Broadcasting.
# python tools/train.py configs/digits/pit-mini-p8-cb_1xb32-14e_digits-32x32.py
_base_ = 'pit-mini-p8_1xb32-14e_digits-32x32.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
