# vitplug's hooks (interruptions, bad samples, non-finite losses ...) for a base of another library:
#   _base_ = ['mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', 'vitplug::_base_/hooks.py']
#   default_hooks = _base_.vitplug_hooks
vitplug_hooks = dict(
    checkpoint=dict(type='vitplug.CheckpointHook'),
    bad_samples=dict(type='vitplug.BadSampleHook'),
    randomness=dict(type='vitplug.RandomnessHook'),
    interruption=dict(type='vitplug.InterruptionHook'),
    non_finite=dict(type='vitplug.NonFiniteLossHook', max_consecutive=5),
    plug_values=dict(type='vitplug.PlugValuesHook', interval=50),
)
