"""From the command line to the config."""

import os
from types import SimpleNamespace

import mmengine.config.config
import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from vitplug.config.reading import read_config
from vitplug.runs.options import test_config as make_test_config
from vitplug.runs.options import test_parser as make_test_parser
from vitplug.runs.options import train_config, train_parser
from vitplug.runs.training_commands import build_runner

CONFIG = """
default_scope = '{scope}'
model = dict(type='Model')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1), accumulative_counts=2)
default_hooks = dict(visualization=dict(type='Hook'))
visualizer = dict(type='Visualizer')
test_dataloader = dict(dataset=dict(pipeline=[dict(type='Load'), dict(type='Pack')]))
test_evaluator = dict(type='Accuracy')
"""
RUNNER = dict(hooks=[], register_hook=lambda hook: None)


@pytest.fixture
def config_file(tmp_path):
    def write(scope='mmpretrain', more=''):
        path = tmp_path / 'net.py'
        path.write_text(CONFIG.format(scope=scope) + more)
        return str(path)

    return write


def train(path, *options):
    return train_config(train_parser().parse_args([path, *options]))


def test(path, *options):
    return make_test_config(make_test_parser().parse_args([path, 'a.pth', *options]))


test.__test__ = False


def test_a_config_in_its_work_dir_is_not_overwritten(config_file, tmp_path):
    """As those of `ablate`; mmengine writes the merged config under `filename`'s last part."""
    cfg = train(config_file(), '--work-dir', str(tmp_path))
    assert os.path.basename(cfg.filename) == 'net_merged.py'


def test_work_dir_of_the_config_gives_way_to_the_command_line(config_file):
    path = config_file(more="work_dir = 'mine'")
    assert train(path).work_dir == 'mine'
    assert train(path, '--work-dir', 'other').work_dir == 'other'


@pytest.mark.parametrize(
    'options, resume, load_from',
    [(['--resume'], 'auto', 'pretrained.pth'), (['--resume', 'epoch_3.pth'], True, 'epoch_3.pth')],
)
def test_resume(config_file, options, resume, load_from):
    cfg = train(config_file(more="load_from = 'pretrained.pth'"), *options)
    assert (cfg.resume, cfg.load_from) == (resume, load_from)
    assert not test(config_file(more='resume = True')).resume  # as it is dumped


def test_amp(config_file):
    cfg = train(config_file(), '--amp')
    expected = dict(type='AmpOptimWrapper', loss_scale='dynamic', dtype='float16')
    assert cfg.optim_wrapper | expected == cfg.optim_wrapper
    cfg = train(config_file(), '--amp', 'bfloat16')
    assert cfg.optim_wrapper | dict(loss_scale=1.0, dtype='bfloat16') == cfg.optim_wrapper


def test_scaled_learning_rate_counts_accumulated_steps(config_file, monkeypatch):
    with pytest.raises(ValueError, match='base_batch_size'):
        train(config_file(), '--auto-scale-lr')
    scaling = 'auto_scale_lr = dict(base_batch_size=8)'
    for option in (['--auto-scale-lr'], ['--cfg-options', 'auto_scale_lr.enable=True']):
        cfg = train(config_file(more=scaling), *option)
        assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=8)  # and so it is dumped
        monkeypatch.setattr(Runner, 'from_cfg', lambda cfg: SimpleNamespace(auto_scale_lr=cfg.auto_scale_lr, **RUNNER))
        assert build_runner(cfg).auto_scale_lr == dict(enable=True, base_batch_size=4)
    build_runner(train(config_file(more='auto_scale_lr = dict(enable=False)')))


@pytest.mark.parametrize('pair', ['model={"a": 1}', "model.backbone.plugs=[dict(type='ContextBroadcast')]"])
def test_dicts_are_no_values(pair, capsys):
    """mmengine takes them for words. Braces in a text make none."""
    train_parser().parse_args(['net.py', '--cfg-options', 'default_hooks.checkpoint.filename_tmpl=it_{}.pth'])
    with pytest.raises(SystemExit, match='2'):
        train_parser().parse_args(['net.py', '--cfg-options', 'lr=1', pair])
    assert f'--cfg-options {pair}: a dict is no value: give its settings one by one, model' in capsys.readouterr().err


@pytest.mark.parametrize(
    'scope, dump, switch, place',
    [
        ('mmpretrain', 'DumpResults', 'enable', lambda cfg: cfg.default_hooks.visualization.out_dir),
        ('mmseg', 'DumpResults', 'draw', lambda cfg: cfg.visualizer.save_dir),
        ('mmdet', 'DumpDetResults', 'draw', lambda cfg: cfg.default_hooks.visualization.test_out_dir),
    ],
)
def test_predictions_are_dumped_and_drawn_in_the_work_dir(config_file, scope, dump, switch, place):
    cfg = test(config_file(scope), '--out', 'a.pkl', '--show-dir', 'pictures')
    assert [(e['type'], e.get('out_file_path')) for e in cfg.test_evaluator] == [('Accuracy', None), (dump, 'a.pkl')]
    assert cfg.default_hooks.visualization[switch] is True and place(cfg) == os.path.abspath('work_dirs/net/pictures')


def test_augmented_tests_are_those_of_the_config(config_file):
    with pytest.raises(ValueError, match='--tta needs tta_pipeline'):
        test(config_file(), '--tta')
    more = "tta_model = dict(type='Merger')\ntta_pipeline = [dict(type='Views')]\n"
    cfg = test(config_file(more=more), '--tta')
    assert cfg.test_dataloader.dataset.pipeline == [dict(type='Views')]
    assert cfg.model == dict(type='Merger', data_preprocessor=None, module=dict(type='Model'))


def test_base_in_an_editable_install_is_found(tmp_path, monkeypatch):
    """Upstream's mmengine takes every package to be beside its metadata."""
    monkeypatch.setattr(mmengine.config.config, 'get_installed_path', lambda package: str(tmp_path / 'site' / package))
    (tmp_path / 'mine.py').write_text("_base_ = 'vitplug::_base_/hooks.py'")
    for read in (Config.fromfile, read_config):
        assert read(str(tmp_path / 'mine.py')).vitplug_hooks.checkpoint.type == 'vitplug.CheckpointHook'


# --- hooks ---


def test_hooks_go_onto_any_base(tmp_path):
    """The base keeps its own hooks and the settings of its checkpoints."""
    base = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
    (tmp_path / 'mine.py').write_text(
        f"_base_ = ['{base}', 'vitplug::_base_/hooks.py']\ndefault_hooks = _base_.vitplug_hooks\n"
    )
    hooks, before = read_config(str(tmp_path / 'mine.py')).default_hooks, read_config(base).default_hooks
    assert hooks.interruption.type == 'vitplug.InterruptionHook'
    assert hooks.checkpoint.type == 'vitplug.CheckpointHook' and hooks.checkpoint.interval == 16000
    assert {name: hooks[name].type for name in before if name != 'checkpoint'} == {
        name: hook.type for name, hook in before.items() if name != 'checkpoint'
    }


def test_none_switches_a_hook_off(config_file):
    """mmengine leaves out its own six; the others are gone before it sees them."""
    path = config_file(more="default_hooks.update(bad_samples=dict(type='Hook'))\n")
    options = [f'default_hooks.{name}=None' for name in ('bad_samples', 'timer')]
    assert train(path, '--cfg-options', *options).default_hooks == dict(visualization=dict(type='Hook'), timer=None)
    with pytest.raises(ValueError, match=r'bad_sample.*did you mean'):
        train(path, '--cfg-options', 'default_hooks.bad_sample=None')
