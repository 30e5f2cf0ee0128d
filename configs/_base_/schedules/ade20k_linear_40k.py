# 40k iterations of AdamW for heads on frozen features: 1500 of warm-up, then linear decay to zero.
_base_ = 'ade20k_40k.py'
optim_wrapper = dict(optimizer=dict(lr=1e-3, weight_decay=1e-2), clip_grad=dict(max_norm=35.0))
