"""Settings of a run that are refused or remarked on, the process group, and the checkpoint to go on from."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config, ConfigDict
from torch import distributed
from toy_training import free_port

from vitplug.config.reading import read_config
from vitplug.files import named
from vitplug.runs import launch
from vitplug.runs.checks import settings
from vitplug.runs.hooks import interruption
from vitplug.runs.hooks.checkpoint import WholeFiles, choose_start
from vitplug.runs.hooks.interruption import InterruptionHook


def config(**settings):
    return ConfigDict(default_scope='mmpretrain', launcher='none', **settings)


def write(path, content='x'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


# --- settings ---


def test_a_preprocessor_that_is_never_read():
    own = dict(model=dict(data_preprocessor=dict(mean=[0.0])))
    settings.check_preprocessors(config(data_preprocessor=dict(mean=[0.0]), **own))
    with pytest.raises(ValueError, match=r'data_preprocessor\.mean = \[1\.0\] is never read.*\[0\.0\]'):
        settings.check_preprocessors(config(data_preprocessor=dict(mean=[1.0]), **own))


def test_launcher_must_have_started_the_process(monkeypatch):
    cfg = config()
    monkeypatch.setenv('TORCHELASTIC_RUN_ID', 'none')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(ValueError, match=r'torchrun has started 2 processes, .*: add --launcher pytorch'):
        settings.check_processes(cfg)


# --- files named on the command line ---


def test_missing_files_suggest_their_neighbours(tmp_path):
    write(tmp_path / 'vit-mini.py')
    write(tmp_path / 'epoch_10.pth')
    with pytest.raises(FileNotFoundError, match=r'no such config: .*vit-mina\.py; did you mean .vit-mini\.py.\?'):
        read_config(str(tmp_path / 'vit-mina.py'))
    with pytest.raises(FileNotFoundError, match=r'--resume: no such checkpoint: .*epoch_1\.pth; .*epoch_10\.pth'):
        named.check_weights(str(tmp_path / 'epoch_1.pth'), option='--resume')
    named.check_weights('https://example.org/a.pth', option='--resume')


# --- process groups on a machine without an accelerator ---


@pytest.fixture
def one_process(monkeypatch):
    """A world of one process, as each launcher describes it."""
    for names in settings.LAUNCHER_VARIABLES.values():
        for name, value in zip(names, '010', strict=True):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv('MASTER_ADDR', '127.0.0.1')
    monkeypatch.setenv('MASTER_PORT', str(free_port()))
    monkeypatch.delenv('LOCAL_WORLD_SIZE', raising=False)
    monkeypatch.setattr(launch, 'get_device', lambda: 'cpu')
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.parametrize('launcher', settings.LAUNCHER_VARIABLES)
def test_gloo_without_an_accelerator(one_process, launcher):
    wrapper, timeout = dict(static_graph=True), dict(dist_cfg=dict(timeout=90))
    cfg = Config(dict(launcher=launcher, find_unused_parameters=True, model_wrapper_cfg=wrapper, env_cfg=timeout))
    launch.start_processes(cfg)
    group = distributed.distributed_c10d._get_default_group()
    assert group._get_backend(torch.device('cpu')).options._timeout.total_seconds() == 90
    expected = dict(device_ids=None, find_unused_parameters=True, static_graph=True)
    assert distributed.get_backend() == 'gloo' and cfg.model_wrapper_cfg | expected == cfg.model_wrapper_cfg
    assert settings.rank_of(launcher) == 0


def test_a_strategy_that_no_runner_reads():
    settings.check_strategy(config(strategy=dict(type=settings.SHARDED)))
    settings.check_strategy(config(strategy=dict(type='DeepSpeedStrategy'), runner_type='FlexibleRunner'))
    with pytest.raises(ValueError, match=r"strategy.type = 'FSDP2Strategy': expected 'vitplug.FSDP2Strategy'"):
        settings.check_strategy(config(strategy=dict(type='FSDP2Strategy')))


def test_epochs_without_their_randomness_cannot_be_interrupted():
    """Before: a resume validated the weights inside an epoch as those of the last one, and began it anew."""
    runner = SimpleNamespace(train_loop=None, hooks=[])
    with pytest.raises(ValueError, match=r'default_hooks\.interruption needs default_hooks.randomness'):
        InterruptionHook().before_train(runner)


@pytest.mark.parametrize(('counts', 'asked'), [(1, [10, 20, 30, 40]), (4, [8, 16, 24, 32, 40]), (16, [16, 32])])
def test_processes_ask_each_other_every_ten_iterations(counts, asked, monkeypatch):
    """Where gradients are accumulated, after whole steps."""
    hook, found = InterruptionHook(), []
    monkeypatch.setattr(interruption.dist, 'get_world_size', lambda: 2)
    monkeypatch.setattr(hook, '_stop_if_asked', lambda runner, done: found.append(done))
    hook.accumulated = counts
    for number in range(40):
        hook.after_train_iter(SimpleNamespace(iter=number), 0)
    hook.after_val_epoch(SimpleNamespace(iter=42))
    assert found == asked + [42] * (counts == 1)


def test_a_finished_validation_is_not_repeated():
    """Plateau schedules would step twice."""
    loop = SimpleNamespace(epoch=2, max_epochs=4, val_begin=1, val_interval=1, _decide_current_val_interval=dict)
    hub = SimpleNamespace(runtime_info={})
    runner = SimpleNamespace(train_loop=loop, val_loop=loop, epoch=2, iter=8, message_hub=hub)
    assert interruption.validation_is_due(runner)
    hub.runtime_info['validated'] = 8
    assert not interruption.validation_is_due(runner)


# --- the checkpoint to go on from ---


def test_a_checkpoint_that_takes_the_name_of_the_removed_one_stays(tmp_path):
    """Such as the best one, where a resumed training validates again."""
    files, (best, older) = WholeFiles(), (write(tmp_path / f'best_{number}.pth') for number in (2, 1))
    for path in (best, older):
        files.remove(str(path))
    WholeFiles().put(b'new', best)
    files.flush(tmp_path)
    assert best.read_bytes() == b'new' and not older.exists()


def test_a_file_takes_the_place_of_shards(tmp_path):
    write(tmp_path / 'iter_1.pth' / '.metadata')
    WholeFiles().put(b'new', tmp_path / 'iter_1.pth')
    assert (tmp_path / 'iter_1.pth').read_bytes() == b'new'


def test_fresh_training_spares_earlier_checkpoints(tmp_path):
    write(tmp_path / '20260101_000000' / 'run.log')
    choose_start(ConfigDict(work_dir=str(tmp_path)))
    write(tmp_path / 'epoch_1.pth')
    with pytest.raises(FileExistsError, match=f'{tmp_path}.*--resume.*--work-dir'):
        choose_start(ConfigDict(work_dir=str(tmp_path)))
    choose_start(ConfigDict(work_dir=str(tmp_path), resume=True, load_from=str(tmp_path / 'epoch_1.pth')))
    with pytest.raises(FileExistsError):
        choose_start(ConfigDict(work_dir=str(tmp_path), resume=True, load_from='elsewhere/epoch_1.pth'))
    away = (tmp_path / 'epoch_1.pth').rename(write(tmp_path / 'out' / 'x').with_name('epoch_1.pth'))
    write(tmp_path / 'last_checkpoint', str(away))  # of CheckpointHook.out_dir
    choose_start(ConfigDict(work_dir=str(tmp_path), resume=True, load_from=str(away)))
    with pytest.raises(FileExistsError):
        choose_start(ConfigDict(work_dir=str(tmp_path)))


def test_resume_goes_on_from_the_noted_checkpoint_or_starts(tmp_path):
    cfg = ConfigDict(work_dir=str(tmp_path), resume='auto', load_from='pretrained.pth')
    choose_start(cfg)
    assert cfg.resume is False and cfg.load_from == 'pretrained.pth'
    write(tmp_path / 'epoch_1.pth')
    write(tmp_path / 'epoch_2.pth')
    for note in (str(tmp_path / 'epoch_1.pth'), '/moved/from/epoch_1.pth'):
        write(tmp_path / 'last_checkpoint', note)
        cfg.resume = 'auto'
        choose_start(cfg)
        assert cfg.resume is True and cfg.load_from == str(tmp_path / 'epoch_1.pth')
