# No weight decay for one-dimensional parameters (biases, norms, the plugs' scalars), position tables and class tokens.
# The scalars are also listed by name: a rule by shape would silently miss one that becomes a vector.
optim_wrapper = dict(
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'dist_token': dict(decay_mult=0.0),
            'storage_tokens': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'rel_pos_table': dict(decay_mult=0.0),
            'rel_pos_h': dict(decay_mult=0.0),
            'rel_pos_w': dict(decay_mult=0.0),
            'cb_scale': dict(decay_mult=0.0),
            'gab_amplitude': dict(decay_mult=0.0),
            'gab_sigma': dict(decay_mult=0.0),
            'residual_alpha': dict(decay_mult=0.0),
        },
    )
)
