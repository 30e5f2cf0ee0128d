# No weight decay for one-dimensional parameters (biases, norms, the plugs' scalars), position tables and class tokens.
# The scalars are also listed by name: a rule by shape would silently miss one that becomes a vector.
optim_wrapper = dict(
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            name: dict(decay_mult=0.0)
            for name in (
                'pos_embed',
                'cls_token',
                'dist_token',
                'storage_tokens',
                'register_tokens',
                'relative_position_bias_table',
                'rel_pos_table',
                'rel_pos_h',
                'rel_pos_w',
                'cb_scale',
                'gab_amplitude',
                'gab_sigma',
                'residual_alpha',
                'sink_logit',
                'frequencies',
            )
        },
    )
)
