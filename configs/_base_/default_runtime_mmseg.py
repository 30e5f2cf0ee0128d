_base_ = 'default_runtime_iters.py'
default_scope = 'mmseg'
default_hooks = dict(visualization=dict(type='SegVisualizationHook'))
visualizer = dict(type='SegLocalVisualizer')
