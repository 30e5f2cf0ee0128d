"""Process groups on a machine without an accelerator."""

import pytest
import torch
from mmengine.config import Config
from torch import distributed

from vitplug.runs import launch
from vitplug.runs.checks.environment import LAUNCHER_VARIABLES, is_first_process


@pytest.fixture
def one_process(monkeypatch):
    """A world of one process, as each launcher describes it."""
    for rank, size, local_rank in LAUNCHER_VARIABLES.values():
        monkeypatch.setenv(rank, '0')
        monkeypatch.setenv(size, '1')
        monkeypatch.setenv(local_rank, '0')
    monkeypatch.setenv('MASTER_ADDR', '127.0.0.1')
    monkeypatch.setenv('MASTER_PORT', '29637')
    monkeypatch.delenv('LOCAL_WORLD_SIZE', raising=False)
    monkeypatch.setattr(launch, 'get_device', lambda: 'cpu')
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.parametrize('launcher', ['pytorch', 'slurm', 'mpi'])
def test_gloo_without_an_accelerator(one_process, launcher):
    cfg = Config(dict(launcher=launcher, find_unused_parameters=True))
    launch.start_processes(cfg)
    assert distributed.get_backend() == 'gloo'
    assert cfg.model_wrapper_cfg.device_ids is None and cfg.model_wrapper_cfg.find_unused_parameters is True


@pytest.mark.parametrize(('setting', 'seconds'), [(dict(timeout=90), 90), ({}, 1800)])
def test_time_out_is_the_setting_of_mmengine(one_process, setting, seconds):
    launch.start_processes(Config(dict(launcher='pytorch', env_cfg=dict(dist_cfg=setting))))
    group = distributed.distributed_c10d._get_default_group()
    assert group._get_backend(torch.device('cpu')).options._timeout.total_seconds() == seconds


def test_settings_of_the_wrapper_are_kept(one_process):
    cfg = Config(dict(launcher='pytorch', model_wrapper_cfg=dict(type='Mine', static_graph=True)))
    launch.start_processes(cfg)
    assert cfg.model_wrapper_cfg.type == 'Mine' and cfg.model_wrapper_cfg.static_graph is True


@pytest.mark.parametrize('launcher, device', [('none', 'cpu'), ('pytorch', 'cuda')])
def test_left_alone(one_process, monkeypatch, launcher, device):
    monkeypatch.setattr(launch, 'get_device', lambda: device)
    cfg = Config(dict(launcher=launcher))
    launch.start_processes(cfg)
    assert not distributed.is_initialized() and 'model_wrapper_cfg' not in cfg


@pytest.mark.parametrize(
    'launcher, variable, rank, first',
    [('none', 'RANK', '1', True), ('pytorch', 'RANK', '0', True), ('slurm', 'SLURM_PROCID', '1', False)],
)
def test_first_process_is_known_before_the_group(monkeypatch, launcher, variable, rank, first):
    monkeypatch.setenv(variable, rank)
    assert is_first_process(launcher) == first
