"""From the command line to the config."""

import argparse
import os
from pathlib import Path

import mmengine.config.config
import pytest
from mmengine.config import Config, DictAction

from vitplug.config.reading import read_config
from vitplug.runs.hooks import __all__ as OURS
from vitplug.runs.options import test_config as make_test_config
from vitplug.runs.options import test_parser as make_test_parser
from vitplug.runs.options import train_config, train_parser

CONFIG = """
default_scope = '{scope}'
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1))
default_hooks = dict(visualization=dict(type='Hook'))
visualizer = dict(type='Visualizer')
test_evaluator = dict(type='Accuracy')
"""


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


def test_defaults(config_file):
    cfg = train(config_file())
    assert cfg.work_dir == 'work_dirs/net' and cfg.launcher == 'none'
    assert not cfg.get('resume') and cfg.optim_wrapper.type == 'OptimWrapper'


def test_work_dir_of_the_config_gives_way_to_the_command_line(config_file):
    path = config_file(more="work_dir = 'mine'")
    assert train(path).work_dir == 'mine'
    assert train(path, '--work-dir', 'other').work_dir == 'other'


@pytest.mark.parametrize(
    'options, resume, load_from',
    [
        (['--resume'], 'auto', 'pretrained.pth'),
        (['--resume', 'auto'], 'auto', 'pretrained.pth'),
        (['--resume', 'epoch_3.pth'], True, 'epoch_3.pth'),
    ],
)
def test_resume(config_file, options, resume, load_from):
    cfg = train(config_file(more="load_from = 'pretrained.pth'"), *options)
    assert (cfg.resume, cfg.load_from) == (resume, load_from)


def test_amp(config_file):
    cfg = train(config_file(), '--amp')
    expected = dict(type='AmpOptimWrapper', loss_scale='dynamic', dtype='float16')
    assert cfg.optim_wrapper | expected == cfg.optim_wrapper
    cfg = train(config_file(), '--amp', 'bfloat16')
    assert cfg.optim_wrapper | dict(loss_scale=1.0, dtype='bfloat16') == cfg.optim_wrapper


def test_loader_without_workers(config_file):
    more = "train_dataloader = dict(num_workers=2, persistent_workers=True, prefetch_factor=4, dataset=dict(type='A'))"
    cfg = train(config_file(more=more), '--cfg-options', 'train_dataloader.num_workers=0')
    assert cfg.train_dataloader == dict(num_workers=0, dataset=dict(type='A'))


def test_scaled_learning_rate_needs_a_base(config_file):
    with pytest.raises(ValueError, match='base_batch_size'):
        train(config_file(), '--auto-scale-lr')
    assert train(config_file(more='auto_scale_lr = dict(base_batch_size=8)'), '--auto-scale-lr').auto_scale_lr.enable


def test_cfg_options_win(config_file):
    cfg = train(config_file(), '--cfg-options', 'optim_wrapper.optimizer.lr=0.5', 'env_cfg.resource_limit=[1,2]')
    assert cfg.optim_wrapper.optimizer.lr == 0.5 and cfg.env_cfg.resource_limit == [1, 2]


# What a shell passes on, and the settings that the message gives in its place.
DICTS = {
    "plugs=[dict(type='ContextBroadcast')]": ['plugs.0.type=ContextBroadcast'],
    "plugs=[dict(type='A', sizes=[1, 2]), {'type': 'B'}]": ['plugs.0.type=A', 'plugs.0.sizes=[1,2]', 'plugs.1.type=B'],
    "plugs=[{'type': 'A', 'inner': {'a': 1}}]": ['plugs.0.type=A', 'plugs.0.inner.a=1'],
    "model=dict(a=1, b=dict(c='x', d=None))": ['model.a=1', 'model.b.c=x', 'model.b.d=None'],
    "model={'a': 1, 'b': 2}": ['model.a=1', 'model.b=2'],
    'model={}': [],
    'plugs=dict()': [],
}
PLAIN = ('lr=0.1', 'a=[(1,2),[3]]', 'name=epoch_{}.pth', 'path=a/{b}/dict', 'word=dict', 'a={b}', 'a=', 'a=b=c', 'a=[]')


@pytest.mark.parametrize('pair', DICTS)
def test_dicts_are_no_values(pair, capsys):
    parser = train_parser()
    with pytest.raises(SystemExit, match='2'):
        parser.parse_args(['net.py', '--cfg-options', 'lr=1', pair])
    error = capsys.readouterr().err.rpartition('error: ')[2]
    assert error.startswith(f'--cfg-options {pair}: a dict is no value')
    assert all(setting in error for setting in DICTS[pair]) and ('_base_' in error) == ('=[' in pair)
    if DICTS[pair]:  # the advice is taken
        assert parser.parse_args(['net.py', '--cfg-options', *DICTS[pair]]).cfg_options


@pytest.mark.parametrize('pair', PLAIN)
def test_plain_values_are_those_of_mmengine(pair):
    plain = argparse.ArgumentParser()
    plain.add_argument('--cfg-options', nargs='+', action=DictAction)
    expected = plain.parse_args(['--cfg-options', pair, 'x=1']).cfg_options
    assert train_parser().parse_args(['net.py', '--cfg-options', pair, 'x=1']).cfg_options == expected


@pytest.mark.parametrize('flag', ['--local_rank=3', '--local-rank=3'])
def test_local_rank_is_passed_on(config_file, monkeypatch, flag):
    monkeypatch.delenv('LOCAL_RANK', raising=False)
    train(config_file(), flag)
    assert os.environ['LOCAL_RANK'] == '3'
    monkeypatch.delenv('LOCAL_RANK')


@pytest.mark.parametrize(
    'scope, dump', [('mmpretrain', 'DumpResults'), ('mmseg', 'DumpResults'), ('mmdet', 'DumpDetResults')]
)
def test_predictions_are_dumped(config_file, scope, dump):
    evaluators = test(config_file(scope), '--out', 'a.pkl').test_evaluator
    assert [e['type'] for e in evaluators] == ['Accuracy', dump]
    assert evaluators[1]['out_file_path'] == 'a.pkl'


@pytest.mark.parametrize(
    'scope, switch, place',
    [
        ('mmpretrain', 'enable', lambda cfg: cfg.default_hooks.visualization.out_dir),
        ('mmseg', 'draw', lambda cfg: cfg.visualizer.save_dir),
        ('mmdet', 'draw', lambda cfg: cfg.default_hooks.visualization.test_out_dir),
    ],
)
def test_pictures_go_where_the_user_says(config_file, scope, switch, place):
    cfg = test(config_file(scope), '--show-dir', 'pictures')
    assert cfg.default_hooks.visualization[switch] is True
    # mmdet's draws every image in tests, whatever the interval.
    assert scope == 'mmdet' or cfg.default_hooks.visualization.interval == 1
    assert place(cfg) == os.path.abspath('pictures')


def test_checkpoint_is_loaded(config_file):
    assert test(config_file()).load_from == 'a.pth'


def test_bases_of_the_installed_package_build_in_the_tasks_scope(tmp_path):
    """mmengine marks what comes from `vitplug::` with a scope in which the task's parts are not found."""
    base, child = tmp_path / 'base.py', tmp_path / 'child.py'
    base.write_text("model = dict(type='ImageClassifier', _scope_='vitplug', neck=[dict(type='N', _scope_='vitplug')])")
    child.write_text("_base_ = 'base.py'\ntta_model = dict(type='M', _scope_='mmdet')")
    cfg = train_config(train_parser().parse_args([str(child)]))
    assert cfg.model == dict(type='ImageClassifier', neck=[dict(type='N')])
    assert cfg.tta_model._scope_ == 'mmdet'


# --- hooks ---


BASES = {
    'mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py': ('mmdet', {'interval': 1}),
    'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py': (
        'mmseg',
        {'interval': 16000, 'by_epoch': False},
    ),
    'mmpretrain::deit/deit-small_4xb256_in1k.py': ('mmpretrain', {'interval': 1}),
    'vitplug::digits/vit-mini-p4_1xb32-14e_digits-32x32.py': ('mmpretrain', {'interval': 1, 'max_keep_ckpts': 2}),
}


# Hooks that tools add by themselves: train.py for checks and compiled models, ablate.py for paired seeds.
BY_TOOLS = {'CheckpointFitHook', 'CompileHook', 'DryValidationHook', 'PairedWeightsHook', 'ValidationLossHook'}
ADDED = ('bad_samples', 'randomness', 'interruption', 'non_finite', 'plug_values')


@pytest.mark.parametrize('base', BASES)
def test_hooks_go_onto_any_base(base, tmp_path):
    """The base keeps its own hooks and the settings of its checkpoints."""
    (tmp_path / 'mine.py').write_text(
        f"_base_ = ['{base}', 'vitplug::_base_/hooks.py']\ndefault_hooks = _base_.vitplug_hooks\n"
    )
    (tmp_path / 'base.py').write_text(f"_base_ = '{base}'\n")
    scope, checkpoints = BASES[base]
    hooks = read_config(str(tmp_path / 'mine.py')).default_hooks
    before = read_config(str(tmp_path / 'base.py'))
    assert before.default_scope == scope
    checkpoint = hooks.pop('checkpoint')
    assert checkpoint.pop('type') == 'vitplug.CheckpointHook' and checkpoint == checkpoints
    added = {name: hooks.pop(name).type for name in ADDED}
    assert {kind.removeprefix('vitplug.') for kind in added.values()} == set(OURS) - {'CheckpointHook'} - BY_TOOLS
    assert hooks == {name: hook for name, hook in before.default_hooks.items() if name in hooks}
    assert {'visualization', 'logger', 'timer'} <= hooks.keys()


def test_base_in_an_editable_install_is_found(tmp_path, monkeypatch):
    """Upstream's mmengine takes every package to be beside its metadata."""
    monkeypatch.setattr(mmengine.config.config, 'get_installed_path', lambda package: str(tmp_path / 'site' / package))
    (tmp_path / 'mine.py').write_text("_base_ = 'vitplug::_base_/hooks.py'")
    for read in (Config.fromfile, read_config):
        assert read(str(tmp_path / 'mine.py')).vitplug_hooks.checkpoint.type == 'vitplug.CheckpointHook'


def test_set_of_hooks_is_whole():
    path = Path(__file__).parents[2] / 'configs' / '_base_' / 'hooks.py'
    named = {hook.type for hook in Config.fromfile(path).vitplug_hooks.values()}
    assert named == {f'vitplug.{name}' for name in set(OURS) - BY_TOOLS}


@pytest.mark.parametrize('name', ['bad_samples', 'visualization', 'timer', 'checkpoint'])
def test_none_switches_a_hook_off(config_file, name):
    """mmengine leaves out its own six; the others are gone before it sees them."""
    path = config_file(more="default_hooks.update(bad_samples=dict(type='Hook'))\n")
    hooks = train(path, '--cfg-options', f'default_hooks.{name}=None').default_hooks
    assert hooks.get(name) is None
    assert (name in hooks) == (name in ('timer', 'checkpoint'))


def test_none_in_a_file_switches_a_hook_off(config_file):
    assert 'visualization' not in train(config_file(more='default_hooks = dict(visualization=None)\n')).default_hooks


def test_unknown_hook_is_not_switched_off(config_file):
    with pytest.raises(ValueError, match=r'default_hooks\.timers = None: .*checkpoint, .*timer, visualization'):
        train(config_file(), '--cfg-options', 'default_hooks.timers=None')
