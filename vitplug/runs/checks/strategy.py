"""The strategy of a config: how several processes share one model."""

SHARDED = 'vitplug.FSDP2Strategy'


def is_sharded_run(cfg) -> bool:
    """True if several processes are to share the model by vitplug's strategy."""
    return (cfg.get('strategy') or {}).get('type') == SHARDED and cfg.get('launcher', 'none') != 'none'


def check_strategy(cfg) -> None:
    """Checks that a strategy has its runner, and no setting that contradicts it.

    Raises:
        ValueError: names the setting and what to do.
    """
    kind, runner = (cfg.get('strategy') or {}).get('type'), cfg.get('runner_type')
    if not kind:
        return
    if kind != SHARDED:
        if runner is None:
            raise ValueError(
                f"strategy.type = {kind!r}: mmengine's strategies need runner_type = 'FlexibleRunner'; vitplug's is "
                f'{SHARDED}'
            )
        return
    if runner is not None:
        raise ValueError(f'runner_type = {runner!r}: leave it out, {SHARDED} has its own runner')
    if cfg.get('model_wrapper_cfg'):
        raise ValueError(f'model_wrapper_cfg: leave it out, {SHARDED} does not wrap the model')
    if (cfg.get('randomness') or {}).get('diff_rank_seed'):
        raise ValueError(
            f'randomness.diff_rank_seed = True: leave it out, all processes of {SHARDED} draw the same weights; '
            'vitplug.RandomnessHook gives each process its own draws'
        )


def unused_strategy(cfg) -> list[str]:
    """Says that a single process does not shard."""
    if (cfg.get('strategy') or {}).get('type') != SHARDED or is_sharded_run(cfg):
        return []
    return [f'strategy = {SHARDED} is not used: one process without --launcher has the whole model']
