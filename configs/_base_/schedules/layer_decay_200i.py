# As cosine_200i.py, with a layer-wise decay of the learning rate, as ViTDet's.
_base_ = 'cosine_200i.py'
optim_wrapper = dict(
    constructor='vitplug.LayerDecayOptimWrapperConstructor',
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(layer_decay_rate=0.6),
)
