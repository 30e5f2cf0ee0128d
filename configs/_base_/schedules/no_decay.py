# No weight decay for one-dimensional parameters (biases, norms), position tables and class tokens. The scalars of plugs
# have none in any schedule.
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
                'relative_position_bias_table',
                'rel_pos_h',
                'rel_pos_w',
            )
        },
    )
)
