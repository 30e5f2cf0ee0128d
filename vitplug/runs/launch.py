"""The process group on machines without an accelerator, where mmengine's launchers fail: they select a CUDA device."""

import os
from datetime import timedelta

import torch
from joblib import cpu_count
from mmengine.device import get_device
from torch import distributed

from .checks.settings import LAUNCHER_VARIABLES, is_sharded_run


def start_processes(cfg) -> None:
    """Joins a group over gloo and adapts the config; on an accelerator mmengine's runner joins the group.

    Args:
        cfg: The merged config; `model_wrapper_cfg` is completed in place.
    """
    if cfg.launcher == 'none' or get_device() != 'cpu':
        return
    for name, source in zip(LAUNCHER_VARIABLES['pytorch'], LAUNCHER_VARIABLES[cfg.launcher], strict=True):
        os.environ[name] = os.environ[source]
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '29500')
    seconds = ((cfg.get('env_cfg') or {}).get('dist_cfg') or {}).get('timeout')
    distributed.init_process_group('gloo', timeout=None if seconds is None else timedelta(seconds=seconds))
    # An equal share of the cores: more threads than cores slow a training down many times.
    torch.set_num_threads(max(1, cpu_count() // int(os.environ.get('LOCAL_WORLD_SIZE') or os.environ['WORLD_SIZE'])))
    if not is_sharded_run(cfg):
        # mmengine's own choice, less the CUDA device.
        wrapper = dict(type='MMDistributedDataParallel', device_ids=None, broadcast_buffers=False)
        wrapper['find_unused_parameters'] = cfg.get('find_unused_parameters', False)
        cfg.model_wrapper_cfg = {**wrapper, **(cfg.get('model_wrapper_cfg') or {})}
