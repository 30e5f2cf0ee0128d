"""Settings of a run that mmengine would overlook, and the processes that it has."""

import os

from mmengine.registry import OPTIMIZERS

from vitplug.config.parts import registered
from vitplug.spelling import hint

# The variables through which each launcher tells a process its rank, the world size and its local rank.
LAUNCHER_VARIABLES = {
    'pytorch': ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
    'mpi': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_RANK'),
}
SHARDED = 'vitplug.FSDP2Strategy'


def check_processes(cfg) -> None:
    """ValueError for processes that would each train for itself, over the files of the others."""
    started = os.environ.get('WORLD_SIZE', '1')
    if cfg.launcher == 'none' and 'TORCHELASTIC_RUN_ID' in os.environ and started != '1':
        raise ValueError(f'torchrun has started {started} processes, but --launcher is none: add --launcher pytorch')


def is_sharded_run(cfg) -> bool:
    """True if several processes are to share the model by vitplug's strategy."""
    return (cfg.get('strategy') or {}).get('type') == SHARDED and cfg.get('launcher', 'none') != 'none'


def check_strategy(cfg) -> None:
    """ValueError for a strategy that mmengine's runner would not read."""
    kind = (cfg.get('strategy') or {}).get('type', SHARDED)
    if kind != SHARDED and 'runner_type' not in cfg:
        raise ValueError(
            f'strategy.type = {kind!r}: expected {SHARDED!r}; for a strategy of mmengine add runner_type = '
            "'FlexibleRunner'"
        )


def rank_of(launcher: str) -> int:
    """Number of this process, by the launcher's variables: there is no process group yet."""
    return int(os.environ.get(LAUNCHER_VARIABLES.get(launcher, ('',))[0], 0))


def check_preprocessors(cfg) -> None:
    """ValueError if the preprocessor of the whole config differs from the model's own, which alone mmengine reads."""
    outer, own = cfg.get('data_preprocessor') or {}, cfg.model.get('data_preprocessor') or {}
    if unread := [key for key in outer if own and key != '_scope_' and outer[key] != own.get(key)]:
        raise ValueError(
            f'data_preprocessor.{unread[0]} = {outer[unread[0]]!r} is never read, for the model has its own '
            f'data_preprocessor, with {own.get(unread[0])!r}: set both alike'
        )


def check_optimizer(cfg) -> None:
    """ValueError for an unknown type of the optimizer, of which mmengine says only that None cannot be called."""
    kind = ((cfg.get('optim_wrapper') or {}).get('optimizer') or {}).get('type')
    if kind is not None and registered(OPTIMIZERS, kind, cfg.default_scope) is None:
        raise ValueError(f'optim_wrapper.optimizer.type = {kind!r}: unknown{hint(kind, OPTIMIZERS.module_dict)}')
