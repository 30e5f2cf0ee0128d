_base_ = 'default_runtime.py'
default_scope = 'mmpretrain'
default_hooks = dict(checkpoint=dict(interval=1), visualization=dict(type='VisualizationHook', enable=False))
visualizer = dict(type='UniversalVisualizer')
