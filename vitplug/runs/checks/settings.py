"""Settings of a run that mmengine and torch would overlook, or refuse late, and the processes that it has."""

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


def rank_and_size(launcher: str) -> tuple[int, int]:
    """Number of this process and of all processes, by the launcher's variables: there is no process group yet."""
    rank, size, _ = LAUNCHER_VARIABLES.get(launcher, ('', '', ''))
    return int(os.environ.get(rank, 0)), int(os.environ.get(size, 1))


def check_preprocessors(cfg) -> None:
    """ValueError if the preprocessor of the whole config differs from the model's own, which alone mmengine reads."""
    outer, own = cfg.get('data_preprocessor') or {}, cfg.model.get('data_preprocessor') or {}
    unread = [key for key in outer if own and key != '_scope_' and outer[key] != own.get(key)]
    if unread:
        raise ValueError(
            f'data_preprocessor.{unread[0]} = {outer[unread[0]]!r} is never read, for the model has its own '
            f'data_preprocessor, with {own.get(unread[0])!r}: set both alike'
        )


def check_optimizer(cfg) -> None:
    """ValueError for an unknown type of the optimizer, of which mmengine says only that None cannot be called."""
    kind = ((cfg.get('optim_wrapper') or {}).get('optimizer') or {}).get('type')
    if kind is not None and registered(OPTIMIZERS, kind, cfg.default_scope) is None:
        raise ValueError(f'optim_wrapper.optimizer.type = {kind!r}: unknown{hint(kind, OPTIMIZERS.module_dict)}')


def unexpected_batch(cfg) -> list[str]:
    """Says if the images of a step are not as many as the learning rate is for."""
    scaling, batch = cfg.get('auto_scale_lr') or {}, (cfg.get('train_dataloader') or {}).get('batch_size')
    base = scaling.get('base_batch_size')
    total = (batch or 0) * rank_and_size(cfg.launcher)[1] * accumulated(cfg)
    if not base or not total or scaling.get('enable') or base == total:
        return []
    return [
        f'each step has {total} images, but the learning rate is for {base} (auto_scale_lr.base_batch_size): set '
        f'train_dataloader.batch_size, or scale the rate by {total / base:g} with --auto-scale-lr'
    ]


def accumulated(cfg) -> int:
    """Batches of a step of the optimizer in one process."""
    return (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
