# mmseg's runtime with vitplug's hooks. Checkpoints, validations and log lines are counted in iterations.
_base_ = ['mmseg::_base_/default_runtime.py', 'hooks.py']
default_hooks = dict(
    _base_.pop('vitplug_hooks'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=20, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='vitplug.CheckpointHook', by_epoch=False, interval=200, max_keep_ckpts=2),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='SegVisualizationHook'),
)
env_cfg = dict(cudnn_benchmark=False, dist_cfg=dict(timeout=1800))
randomness = dict(seed=0)
