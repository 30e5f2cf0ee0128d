_base_ = 'default_runtime_iters.py'
default_scope = 'mmdet'
default_hooks = dict(visualization=dict(type='DetVisualizationHook'))
visualizer = dict(type='DetLocalVisualizer')
