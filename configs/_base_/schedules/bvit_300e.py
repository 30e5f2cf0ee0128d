# 300 epochs of AdamW with the BViT paper's recipe. The learning rate follows DeiT's rule, 5e-4 for 512 images. The
# paper's 5000 steps of warm-up are 5 epochs for 1280 images. The decay of the averaged weights (EMA) is DeiT's.
_base_ = 'cb_300e.py'
optim_wrapper = dict(optimizer=dict(lr=1.25e-3))
auto_scale_lr = dict(base_batch_size=1280)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
