_base_ = 'hooks.py'
default_scope = 'mmpretrain'

default_hooks = dict(
    # Taken out of the base, so that it does not count as a key that two bases have.
    _base_.pop('vitplug_hooks'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=20),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='vitplug.CheckpointHook', interval=1, max_keep_ckpts=2),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='VisualizationHook', enable=False),
)
env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    # A process that waits for another one longer than this many seconds ends: longer than rank 0 evaluates and saves.
    dist_cfg=dict(backend='nccl', timeout=1800),
)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends, name='visualizer')
log_level = 'INFO'
load_from = None
resume = False
randomness = dict(seed=0)
