# 300 epochs of AdamW with DeiT's recipe for 1024 images per step, and averaged weights (EMA).
_base_ = 'cb_300e.py'
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
