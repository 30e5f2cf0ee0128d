"""The doctor names what is broken and how to repair it."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vitplug.backbones
from vitplug import doctor, stacks
from vitplug import plugs as kinds
from vitplug.nodes.worker import uneven_devices
from vitplug.plugs import PLUG_TYPES, BroadAttention, ContextBroadcast, RelPosBias, RelPosMlp, SqueezeExcite
from vitplug.plugs.text import SHORT_NAMES as PLUG_NAMES

# The plugs that a host takes in all of its blocks, where that is not every plug.
TOKENS = {ContextBroadcast, SqueezeExcite, kinds.ConditionalPosition}
OF_OWN_KEYS = {
    kinds.ExclusiveSelfAttention,
    kinds.LocalitySelfAttention,
    kinds.NeuTRENO,
    kinds.RotaryPosition,
    kinds.ValueResidual,
}
TAKEN = {
    'MlpMixer': TOKENS,
    'LVT': {BroadAttention, kinds.FeatureScale, *TOKENS},
    'MViT': set(PLUG_TYPES) - {RelPosBias, RelPosMlp, kinds.GatedAttention, *OF_OWN_KEYS},
    **dict.fromkeys(('SwinTransformer', 'SwinTransformerV2'), set(PLUG_TYPES) - {kinds.Registers}),
}


@pytest.mark.integration
def test_this_stack_is_in_order(capsys):
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert 'the stack is in order' in out and 'BROKEN' not in out
    lines = [line.split() for line in out.splitlines()]
    [plugs] = [line[2:] for line in lines if line[:2] == ['plugs', 'in']]
    assert [PLUG_NAMES.get(plug, plug) for plug in plugs] == [plug.__name__ for plug in PLUG_TYPES]
    for backbone in set(vitplug.backbones.__all__) - {*doctor.NAMED}:
        [cells] = [line[1:] for line in lines if line[:1] == [backbone]]
        taken = TAKEN.get(backbone, PLUG_TYPES)
        assert cells == ['ok' if plug in taken else '-' for plug in PLUG_TYPES], backbone
    assert len(re.findall(r'ok +a step of \w+ +loss', out)) == 3
    for library in ('mmpretrain', 'mmdet', 'mmseg', 'vitplug'):
        [folder] = [line.split()[-1] for line in out.splitlines() if f'configs {library}::' in line]
        assert any(Path(folder).glob('_base_/*'))


@pytest.mark.parametrize(
    ('installed', 'warning'),
    [
        ([('wheel', None)], r'imported from \S+/vitplug, but this environment has that of \S+/wheel/vitplug installed'),
        ([('site', 'away')], r'this environment has that of \S+/away/vitplug installed: take \S+ out of PYTHONPATH'),
        ([('site', '')], None),
        ([('checkout', 'egg-info'), ('site', 'away')], r'has that of \S+/away/vitplug'),
        ([], None),
    ],
)
def test_another_vitplug_than_the_installed_one_is_said(installed, warning, tmp_path, monkeypatch, capsys):
    """A checkout on PYTHONPATH beside another one, or beside a wheel."""
    found = []
    for name, source in installed:
        info = tmp_path / name / ('vitplug.egg-info' if source == 'egg-info' else 'vitplug-0.1.0.dist-info')
        info.mkdir(parents=True)
        if source != 'egg-info':
            (info / 'RECORD').touch()
            if source is not None:
                root = tmp_path / source if source else Path(doctor.__file__).parents[1]
                (info / 'direct_url.json').write_text(json.dumps(dict(url=root.as_uri(), dir_info=dict(editable=True))))
        found.append(importlib.metadata.PathDistribution(info))
    monkeypatch.setattr(importlib.metadata, 'distributions', lambda name: found)
    [check] = [check for check in doctor.STACK if check.name == 'vitplug']
    assert doctor.report([check]) == []
    out = capsys.readouterr().out
    assert out.startswith('  warning vitplug ' if warning else '  ok      vitplug ')
    assert re.search(warning or '/vitplug', out)


def test_quick_looks_at_imports_only(capsys):
    assert doctor.main(['--quick']) == 0
    out = capsys.readouterr().out
    assert 'mmcv.ops' in out and 'a step of' not in out and 'plugs in' not in out


@pytest.mark.integration
@pytest.mark.slow
def test_broken_ops_are_named_with_their_remedy():
    """Of an mmcv that was built for another torch."""
    code = "import sys\nsys.modules['mmcv._ext'] = None\nfrom vitplug import doctor\nsys.exit(doctor.main())\n"
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert result.returncode == 1
    broken = [line[10:55].strip() for line in result.stdout.splitlines() if line.startswith('  BROKEN')]
    needs_ops = ['mmcv.ops', 'mmcv ops', 'a step of detection']
    assert broken == needs_ops
    # What stands on the ops is not to blame, and the last lines are the one thing to do.
    assert doctor.REPORT not in result.stdout and doctor.STACK_FIRST in result.stdout
    *_, verdict, command = result.stdout.splitlines()
    assert verdict.startswith(f'the stack is not in order ({len(needs_ops)} failed)')
    assert command.strip() == stacks.build_ops()
    assert not result.stderr


BUILD = 'pip install --no-build-isolation --no-cache-dir --no-deps --force-reinstall'


@pytest.mark.parametrize(
    ('found', 'command'),
    [
        ({}, f'{BUILD} onedl-mmcv'),
        ({'onedl-mmcv': '2.3.6'}, f'{BUILD} onedl-mmcv==2.3.6'),
        ({'mmcv': '2.1.0'}, f'{BUILD} mmcv==2.1.0'),
        ({'mmcv-lite': '2.1.0'}, f'pip uninstall -y mmcv-lite && {BUILD} mmcv==2.1.0'),
    ],
    ids=str,
)
def test_ops_are_installed_for_the_mmcv_that_is_there(monkeypatch, found, command):
    monkeypatch.setattr(stacks, 'installed', lambda names: {n: found[n] for n in names if n in found})
    assert stacks.build_ops() == command
    assert ('-e .' in stacks.install_packages()) == ('onedl-mmcv' in found or not found)


@pytest.mark.parametrize(
    'number, command',
    [
        ('2.12.1', 'pip install --no-deps --force-reinstall torchvision==0.27.1'),
        ('2.5.0+cpu', ' torchvision==0.20.0 --index-url https://download.pytorch.org/whl/cpu'),
        ('2.13.0.dev20261101', 'torchvision that was built for torch 2.13.0.dev20261101'),
        (None, 'pip install torch torchvision'),
    ],
)
def test_torchvision_has_to_fit_torch(monkeypatch, number, command):
    monkeypatch.setattr(stacks, 'installed', lambda names: {'torch': number} if number else {})
    assert stacks.fit_torchvision().endswith(command)


def test_on_a_stack_in_order_vitplug_is_to_blame(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'TASKS', (doctor.Check('a step', 'tests', doctor.REPORT, lambda: 1 // 0),))
    monkeypatch.setattr(doctor, 'backbone_checks', dict)
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert 'ZeroDivisionError' in out and 'vitplug is not in order (1 failed)' in out and doctor.REPORT in out


def test_a_plug_that_fails_is_named_below_the_table(monkeypatch, capsys):
    checks = {name: doctor.Check(name, 'this plug', '', run) for name, run in (('a', str), ('b', lambda: 1 // 0))}
    monkeypatch.setattr(doctor, 'backbone_checks', lambda: {'Host': checks, 'Further': dict(checks, b=checks['a'])})
    assert doctor.report_backbones('report it') == ['report it']
    _, *rows, _, broken, remedy = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [['Host', 'ok', 'BROKEN'], ['Further', 'ok', 'ok']]
    assert 'BROKEN  b ' in broken and 'ZeroDivisionError' in broken and remedy.endswith('repair it: report it')


def test_backbones_that_do_not_import_are_reported(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'vitplug.backbones', None)
    assert doctor.report_backbones(doctor.STACK_FIRST) == [doctor.STACK_FIRST]
    assert 'vitplug.backbones' in capsys.readouterr().out


@pytest.mark.integration
def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'NEEDS', (doctor.Need('no_such_package', 'tests', 'pip install it'),))
    assert doctor.main() == 1
    assert 'no_such_package' in (out := capsys.readouterr().out) and 'repair it: pip install it' in out


def test_two_distributions_of_one_package_are_a_trap(monkeypatch, capsys):
    present = {'mmcv': '2.1.0', 'onedl-mmcv': '2.3.6', 'opencv-python': '4.12'}
    monkeypatch.setattr(stacks, 'installed', lambda names: {n: present[n] for n in names if n in present})
    [remedy] = doctor.report(check for check in doctor.STACK if check.name == 'distribution names')
    assert 'mmcv comes from onedl-mmcv 2.3.6 and mmcv 2.1.0' in capsys.readouterr().out
    assert remedy.startswith('pip uninstall -y onedl-mmcv mmcv && pip install')
    present.pop('mmcv')
    assert doctor.one_distribution_each() == 'onedl-mmcv'
    present['opencv-python-headless'] = '4.11'
    with pytest.raises(ValueError, match=r'cv2 comes from builds of different versions'):
        doctor.one_distribution_each()


def test_an_operator_of_another_build_is_found_though_it_imports(monkeypatch):
    import torchvision

    monkeypatch.setattr(torchvision.ops, 'nms', lambda boxes, scores, threshold: torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match=r'keeps boxes \[0, 1\] instead of \[0, 2\]'):
        doctor.torchvision_beside_torch()


def test_library_without_configs_is_no_fault():
    assert doctor.folder_of_configs('no_such_library').startswith('no_such_library is not installed')
    assert doctor.folder_of_configs('torch').startswith('torch came without configs')


def test_a_refused_plug_is_no_fault():
    assert doctor.plug_in_backbone('SwinTransformer', 'NoSuchPlug').startswith('refused')


def test_gradients_that_are_not_finite_are_a_fault():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(FloatingPointError):
        doctor._check_finite(model(torch.ones(1, 1)).sum() * float('inf'), model)


@pytest.mark.parametrize('option', ['--endpoint', '--processes'])
def test_options_of_several_machines_need_them(option, capsys):
    with pytest.raises(SystemExit, match='2'):
        doctor.main(['--quick', option, '2'])
    assert '--endpoint and --processes are for --nodes' in capsys.readouterr().err


def test_processes_without_a_gpu_beside_others_are_named():
    infos = [dict(host=f'node{rank}', backend='gloo' if rank == 2 else 'nccl') for rank in range(4)]
    assert 'some processes have a GPU and some have none (node2, process 2)' in uneven_devices(infos)
    assert uneven_devices(infos[:2]) == uneven_devices(infos[2:3]) == ''
