# UPerNet on ADE20K as in mmseg's config of Swin-T, 160k iterations of 16 images, with vitplug's hooks. One-dimensional
# parameters take no weight decay.
_base_ = ['mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py', 'hooks.py']
default_hooks = dict(
    _base_.pop('vitplug_hooks'),
    checkpoint=dict(type='vitplug.CheckpointHook', by_epoch=False, interval=16000, max_keep_ckpts=2),
)
# A broken image of the validation is an error, not replaced by another one.
val_dataloader = test_dataloader = dict(dataset=dict(test_mode=True))
optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=0.0))
auto_scale_lr = dict(base_batch_size=16)
# Seconds after which a process stops waiting for another one; longer than rank 0 needs to evaluate and save.
env_cfg = dict(cudnn_benchmark=False, dist_cfg=dict(timeout=1800))
randomness = dict(seed=0)
