_base_ = 'default_runtime.py'
default_scope = 'mmdet'
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=200),
    visualization=dict(type='DetVisualizationHook'),
)
visualizer = dict(type='DetLocalVisualizer')
log_processor = dict(by_epoch=False)
