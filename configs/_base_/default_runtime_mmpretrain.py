_base_ = 'hooks.py'
default_scope = 'mmpretrain'
default_hooks = dict(
    # Removed from the base: mmengine refuses a key that occurs in two bases.
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
    # Seconds after which a process stops waiting for another one; longer than rank 0 needs to evaluate and save.
    dist_cfg=dict(backend='nccl', timeout=1800),
)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends, name='visualizer')
log_level = 'INFO'
load_from = None
resume = False
randomness = dict(seed=0)
