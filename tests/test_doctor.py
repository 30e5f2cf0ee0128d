"""The doctor names what is broken and how to repair it."""

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from stacks import STACK

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
    assert re.search(r'^  ok +stack +(onedl|openmmlab|openmmlab-new), as tested$', out, re.MULTILINE)
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
def test_missing_ops_are_named_with_their_remedy():
    code = (
        'import sys\n'
        "sys.modules['mmcv._ext'] = None\n"
        "for name in [n for n in sys.modules if n.startswith('mmcv')]: del sys.modules[name]\n"
        "sys.modules['mmcv._ext'] = None\n"
        'from vitplug import doctor\n'
        'sys.exit(doctor.main())\n'
    )
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert result.returncode == 1
    broken = [line[10:55].strip() for line in result.stdout.splitlines() if line.startswith('  BROKEN')]
    # Upstream's mmseg builds no model without them.
    segmentation = [] if STACK == 'onedl' else ['a step of segmentation']
    needs_ops = ['mmcv.ops', 'mmcv ops', *segmentation, 'a step of detection']
    assert broken == needs_ops
    # What stands on the ops is not to blame, and the last lines are the one thing to do.
    assert doctor.REPORT not in result.stdout and doctor.STACK_FIRST in result.stdout
    *_, verdict, command = result.stdout.splitlines()
    assert verdict.startswith(f'the stack is not in order ({len(needs_ops)} failed)')
    assert command.strip() == stacks.build_ops()
    # torch 2.5 warns about mmengine's imports, whatever the filters are.
    known = 2 if STACK == 'openmmlab-new' else 0
    assert len(result.stderr.splitlines()) == known and result.stderr.count('TorchScript') == known // 2


WHEELS = 'https://download.openmmlab.com/mmcv/dist/'


def pretend(monkeypatch, found, system='linux', machine='x86_64', python=(3, 11)):
    """Lets the doctor find these distributions on such a machine."""
    monkeypatch.setattr(stacks, 'installed', lambda names: {n: found[n] for n in names if n in found})
    monkeypatch.setattr(sys, 'platform', system)
    monkeypatch.setattr(platform, 'machine', lambda: machine)
    monkeypatch.setattr(sys, 'version_info', python)


@pytest.mark.parametrize(
    'found, command',
    [
        ({}, 'pip install --no-build-isolation --no-cache-dir onedl-mmcv==2.3.6'),
        ({'onedl-mmcv': '2.3.6'}, '--no-deps --force-reinstall onedl-mmcv==2.3.6'),
        ({'mmcv': '2.1.0'}, '--no-build-isolation --no-cache-dir --no-deps --force-reinstall mmcv==2.1.0'),
        ({'mmcv': '2.1.0', 'torch': '2.5.1'}, '--no-build-isolation --no-cache-dir --no-deps --force-reinstall mmcv=='),
        ({'mmcv-lite': '2.1.0'}, 'pip uninstall -y mmcv-lite && pip install'),
        ({'mmcv-lite': '2.1.0'}, ' mmcv==2.1.0'),
        # Prebuilt, where this mmcv is for this torch.
        ({'torch': '2.1.2'}, f'pip install --only-binary mmcv --find-links {WHEELS}cu121/torch2.1/index.html mmcv=='),
        ({'torch': '2.1.0+cpu', 'mmcv': '2.1.0'}, f'{WHEELS}cpu/torch2.1/index.html --no-deps --force-reinstall mmcv='),
        ({'torch': '2.1.2', 'mmcv-lite': '2.1.0'}, 'pip uninstall -y mmcv-lite && pip install --only-binary mmcv'),
        ({'torch': '2.1.2', 'mmcv': '2.0.1'}, '--no-build-isolation --no-cache-dir'),
        ({'torch': '2.1.2', 'onedl-mmcv': '2.3.6'}, '--no-build-isolation --no-cache-dir'),
    ],
    ids=str,
)
def test_ops_are_installed_for_the_mmcv_that_is_there(monkeypatch, found, command):
    pretend(monkeypatch, found)
    assert command in stacks.build_ops()


@pytest.mark.parametrize(
    'torch, machine, address',
    [
        ('2.1.2', {}, 'cu121/torch2.1/index.html'),
        ('2.1.2+cu121', {}, 'cu121/torch2.1/index.html'),
        ('2.1.1+cu118', {}, 'cu118/torch2.1/index.html'),
        ('2.1.2+cpu', {}, 'cpu/torch2.1/index.html'),
        ('2.1.2', dict(system='win32', machine='AMD64'), 'cpu/torch2.1/index.html'),
        ('2.1.2+rocm5.6', {}, ''),
        ('2.1.2', dict(machine='aarch64'), ''),
        ('2.1.2', dict(python=(3, 12)), ''),
        ('2.3.1', {}, ''),
        ('2.12.1', {}, ''),
        (None, {}, ''),
    ],
    ids=str,
)
def test_prebuilt_wheels_are_named_where_there_are_some(monkeypatch, capsys, torch, machine, address):
    pretend(monkeypatch, {'torch': torch} if torch else {}, **machine)
    assert doctor.main(['--wheels']) == 0
    assert capsys.readouterr().out.strip() == (address and WHEELS + address)


ONEDL, UPSTREAM = ('onedl-mmcv', '2.3.6'), ('mmcv', '2.1.0')


@pytest.mark.parametrize(
    'torch, mmcv, said, extra',
    [
        ('2.12.1', ONEDL, 'onedl, as tested', 'onedl'),
        ('2.12.1+cpu', ONEDL, 'onedl, as tested', 'onedl'),
        ('2.1.2', UPSTREAM, 'openmmlab, as tested', 'openmmlab'),
        ('2.5.1+cu124', UPSTREAM, 'openmmlab-new, as tested', 'openmmlab'),
        ('2.3.0', UPSTREAM, 'openmmlab is the nearest: torch is 2.3.0, not 2.1.2', 'openmmlab'),
        ('2.6.0', ('mmcv', '2.2.0'), 'openmmlab-new is the nearest: torch is 2.6.0, not 2.5.1, mmcv is', 'openmmlab'),
        ('2.13.0', ONEDL, 'onedl is the nearest: torch is 2.13.0, not 2.12.1', 'onedl'),
        ('2.1.2', None, 'openmmlab is the nearest: mmcv is missing', 'openmmlab'),
        (None, UPSTREAM, 'openmmlab is the nearest: torch is missing', 'openmmlab'),
        (None, None, 'onedl is the nearest: torch is missing', 'onedl'),
    ],
)
def test_the_stack_is_named(monkeypatch, torch, mmcv, said, extra):
    pretend(monkeypatch, dict([mmcv] if mmcv else []) | ({'torch': torch} if torch else {}))
    assert stacks.stack_here().startswith(said)
    assert f"'.[{extra}]'" in stacks.install_packages()


def test_stacks_are_those_that_set_up_pins():
    requirements = Path(__file__).resolve().parents[1] / 'requirements'
    pinned = {}
    for stack in stacks.STACKS:
        pins = dict(re.findall(r'^([\w-]+)==(.+)$', (requirements / f'{stack.name}.txt').read_text(), re.MULTILINE))
        assert (pins['torch'], pins[stack.mmcv]) == stack.versions
        pinned[stack.name] = pins
    old, new = pinned['openmmlab'], pinned['openmmlab-new']
    assert {name for name in old | new if old.get(name) != new.get(name)} == {'torch', 'torchvision'}


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


def test_setuptools_without_pkg_resources(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'pkg_resources', None)
    assert doctor.report(doctor.STACK[-1:])
    assert "pip install 'setuptools>=80,<82'" in capsys.readouterr().out


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


@pytest.mark.integration
def test_set_up_asks_for_wheels_before_any_package_is_installed():
    code = """import sys
for name in ('torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'numpy'):
    sys.modules[name] = None
from vitplug import doctor
sys.exit(doctor.main(['--wheels']))"""
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, '')
