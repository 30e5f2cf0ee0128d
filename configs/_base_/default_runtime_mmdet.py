# mmdet's runtime with vitplug's hooks. Checkpoints, validations and log lines are counted in iterations.
_base_ = ['mmdet::_base_/default_runtime.py', 'hooks.py']
default_hooks = dict(
    _base_.pop('vitplug_hooks'),
    logger=dict(interval=20, log_metric_by_epoch=False),
    checkpoint=dict(type='vitplug.CheckpointHook', by_epoch=False, interval=200, max_keep_ckpts=2),
)
env_cfg = dict(dist_cfg=dict(timeout=1800))
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
