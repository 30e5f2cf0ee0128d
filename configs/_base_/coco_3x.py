# Mask R-CNN on COCO as in mmdet's config of Swin-T, 36 epochs of 16 images, with vitplug's hooks. One-dimensional
# parameters take no weight decay.
_base_ = ['mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py', 'hooks.py']
default_hooks = dict(
    _base_.pop('vitplug_hooks'), checkpoint=dict(type='vitplug.CheckpointHook', interval=1, max_keep_ckpts=2)
)
train_dataloader = dict(num_workers=4)
val_dataloader = test_dataloader = dict(num_workers=4)
optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=0.0))
# Seconds after which a process stops waiting for another one; longer than rank 0 needs to evaluate and save.
env_cfg = dict(dist_cfg=dict(timeout=1800))
randomness = dict(seed=0)
