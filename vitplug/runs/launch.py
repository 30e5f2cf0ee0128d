"""The process group, made before mmengine's runner makes it.

mmengine's launchers select a CUDA device for every process and wrap the model for that device. Both fail on a machine
without an accelerator, so this module makes the process group (gloo) and the settings of the wrapper. Under torchrun
it makes the group of CUDA devices as well, with the store of this start.
"""

import os
import re
import subprocess
from datetime import timedelta

import torch
from mmengine.device import get_device
from mmengine.dist import init_dist
from torch import distributed

from vitplug.threads import cores

from .checks.environment import LAUNCHER_VARIABLES
from .checks.strategy import is_sharded_run
from .restarts import meet


def start_processes(cfg) -> None:
    """Joins the process group and adapts the config; does nothing for one process.

    On an accelerator, mmengine's runner joins the group, except under torchrun on CUDA devices.

    Args:
        cfg: The merged config; `model_wrapper_cfg` is completed in place.

    Raises:
        ValueError: if `env_cfg.dist_cfg.timeout` is no number of seconds.
        PeerLost: if another process does not come.
    """
    if cfg.launcher == 'none':
        return
    meeting = meet() if cfg.launcher == 'pytorch' else None
    if get_device() == 'cpu':
        _start_cpu_processes(cfg, meeting.place if meeting else {})
    elif get_device() == 'cuda' and meeting:
        init_dist(cfg.launcher, **_group_settings(cfg), **meeting.place)


def _start_cpu_processes(cfg, place: dict) -> None:
    for name, source in zip(LAUNCHER_VARIABLES['pytorch'], LAUNCHER_VARIABLES[cfg.launcher], strict=True):
        os.environ[name] = os.environ[source]
    if 'MASTER_ADDR' not in os.environ:
        os.environ['MASTER_ADDR'] = first_host(os.environ['SLURM_NODELIST']) if cfg.launcher == 'slurm' else '127.0.0.1'
    os.environ.setdefault('MASTER_PORT', '29500')
    distributed.init_process_group('gloo', **_time_out(cfg), **place)
    torch.set_num_threads(_threads_per_process())
    if not is_sharded_run(cfg):
        cfg.model_wrapper_cfg = {**_cpu_wrapper(cfg), **(cfg.get('model_wrapper_cfg') or {})}


def is_first_process(launcher: str) -> bool:
    """True for the process of rank 0, by the launcher's variables: there is no process group yet."""
    rank, *_ = LAUNCHER_VARIABLES.get(launcher, ('',))
    return int(os.environ.get(rank, 0)) == 0


def _group_settings(cfg) -> dict:
    return (cfg.get('env_cfg') or {}).get('dist_cfg') or {}


def _time_out(cfg) -> dict:
    """The time-out of the process group, from the setting that mmengine has for it, in seconds."""
    seconds = _group_settings(cfg).get('timeout')
    if seconds is None:
        return {}
    if not isinstance(seconds, int | float) or seconds <= 0:
        raise ValueError(f'env_cfg.dist_cfg.timeout = {seconds!r}: expected seconds, a number above 0')
    return dict(timeout=timedelta(seconds=seconds))


def _cpu_wrapper(cfg) -> dict:
    """mmengine's own choice of wrapper, less the CUDA device."""
    return dict(
        type='MMDistributedDataParallel',
        device_ids=None,
        broadcast_buffers=False,
        find_unused_parameters=cfg.get('find_unused_parameters', False),
    )


def _threads_per_process() -> int:
    """An equal share of the cores: more threads than cores slow a training down many times."""
    processes = int(os.environ.get('LOCAL_WORLD_SIZE') or os.environ['WORLD_SIZE'])
    return max(1, cores() // processes)


def first_host(nodes: str) -> str:
    """The first name of a list of Slurm's, such as ``node[3-4]``.

    Raises:
        OSError: If Slurm does not name it.
    """
    if not re.search(r'[\[,]', nodes):
        return nodes
    answer = subprocess.run(['scontrol', 'show', 'hostnames', nodes], capture_output=True, text=True)
    hosts = answer.stdout.split()
    if answer.returncode or not hosts:
        raise OSError(f'scontrol show hostnames {nodes}: no answer {answer.stderr.strip()}')
    return hosts[0]
