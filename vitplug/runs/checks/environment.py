"""The machine and the launcher that a run needs."""

import os

from mmengine.device import get_device

from vitplug.commands import located

# The variables through which each launcher tells a process its rank, the world size and its local rank.
LAUNCHER_VARIABLES = {
    'pytorch': ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
    'mpi': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_RANK'),
}


def number_of_processes(launcher: str) -> int:
    """Processes of the run, by the launcher's variables: there is no process group yet."""
    _, size, _ = LAUNCHER_VARIABLES.get(launcher, ('', '', ''))
    return int(os.environ.get(size, 1))


def is_first_process(launcher: str) -> bool:
    """True for the process of rank 0, by the launcher's variables: there is no process group yet."""
    rank, *_ = LAUNCHER_VARIABLES.get(launcher, ('',))
    return int(os.environ.get(rank, 0)) == 0


def check_amp(cfg) -> None:
    """Checks that automatic mixed precision has an accelerator to run on.

    Raises:
        ValueError: if it has none.
    """
    if cfg.get('optim_wrapper', {}).get('type') == 'AmpOptimWrapper' and get_device() in ('cpu', 'mps'):
        raise ValueError(
            f'mixed precision (--amp, AmpOptimWrapper) needs an accelerator, but the device here is {get_device()}: '
            'leave --amp out, or pass --cfg-options optim_wrapper.type=OptimWrapper if the config has it'
        )


def check_launcher(launcher: str) -> None:
    """Checks that the launcher that was asked for has started this process.

    Raises:
        ValueError: names the variables it should have set, or the option that torchrun's processes need.
    """
    started = os.environ.get('WORLD_SIZE', '1')
    if launcher == 'none' and 'TORCHELASTIC_RUN_ID' in os.environ and started != '1':
        raise ValueError(f'torchrun has started {started} processes, but --launcher is none: add --launcher pytorch')
    missing = [name for name in LAUNCHER_VARIABLES.get(launcher, ()) if name not in os.environ]
    if missing:
        raise ValueError(
            f'--launcher {launcher} needs the environment variables {", ".join(missing)}: '
            + located('start through tools/dist_train.sh, tools/dist_test.sh or tools/slurm_train.sh')
        )
