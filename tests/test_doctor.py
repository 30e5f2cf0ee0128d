"""The doctor names what is broken and how to repair it."""

import re
import subprocess
import sys

import pytest
import torch
import torchvision

from vitplug import doctor, stacks


def lines_of(checks, capsys):
    remedies = doctor.report(checks)
    return remedies, capsys.readouterr().out


@pytest.mark.integration
def test_all_is_in_order(capsys):
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert 'all is in order' in out and 'BROKEN' not in out
    assert len(re.findall(r'ok +a step of \w+ +loss', out)) == 3


def test_quick_looks_at_imports_only(capsys):
    assert doctor.main(['--quick']) == 0
    out = capsys.readouterr().out
    assert 'mmcv.ops' in out and 'a step of' not in out


@pytest.mark.integration
@pytest.mark.slow
def test_broken_ops_are_named_with_their_remedy():
    """Of an mmcv that was built for another torch."""
    code = "import sys\nsys.modules['mmcv._ext'] = None\nfrom vitplug import doctor\nsys.exit(doctor.main())\n"
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert result.returncode == 1
    broken = [line[10:36].strip() for line in result.stdout.splitlines() if line.startswith('  BROKEN')]
    assert broken == ['mmcv.ops', "mmcv's ops", 'a step of detection']
    # What stands on the ops is not to blame, and the last lines are the one thing to do.
    assert doctor.REPORT not in result.stdout and doctor.PACKAGES_FIRST in result.stdout
    *_, verdict, command = result.stdout.splitlines()
    assert verdict.startswith('the packages are not in order (3 failed)')
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
    ('number', 'command'),
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


def test_where_all_packages_are_in_order_vitplug_is_to_blame(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'TASKS', (doctor.Check('a step', '', lambda: 1 // 0),))
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert 'ZeroDivisionError' in out and 'vitplug is not in order (1 failed)' in out and doctor.REPORT in out


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'mmdet', None)
    monkeypatch.setattr(stacks, 'installed', lambda names: {})
    assert doctor.main(['--quick']) == 1
    out = capsys.readouterr().out
    assert re.search(r'BROKEN +mmdet +ModuleNotFoundError: .*\n +repair it: pip install -e \.', out)


def test_a_transformers_that_mmpretrain_cannot_use_is_named(monkeypatch, capsys):
    def fails(name):
        raise ImportError("cannot import name 'apply_chunking_to_forward' from 'transformers.modeling_utils'")

    monkeypatch.setattr(doctor.importlib, 'import_module', fails)
    remedies, out = lines_of([doctor.imports()[0]], capsys)
    assert 'apply_chunking' in out and remedies[0].startswith("pip install 'transformers<5'")


def test_two_distributions_of_one_package_are_a_trap(monkeypatch, capsys):
    present = {'mmcv': '2.1.0', 'onedl-mmcv': '2.3.6', 'opencv-python': '4.12'}
    monkeypatch.setattr(stacks, 'installed', lambda names: {n: present[n] for n in names if n in present})
    checks = [check for check in doctor.PACKAGES if check.name == 'distributions']
    [remedy], out = lines_of(checks, capsys)
    assert 'mmcv comes from onedl-mmcv 2.3.6 and mmcv 2.1.0' in out
    assert remedy.startswith('pip uninstall -y onedl-mmcv mmcv && pip install')
    present.pop('mmcv')
    assert lines_of(checks, capsys)[0] == []
    present['opencv-python-headless'] = '4.11'
    _, out = lines_of(checks, capsys)
    assert 'cv2 comes from opencv-python 4.12 and opencv-python-headless 4.11' in out


def test_an_operator_of_another_build_is_found_though_it_imports(monkeypatch):
    monkeypatch.setattr(torchvision.ops, 'nms', lambda boxes, scores, threshold: torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match=r'keeps boxes \[0, 1\] instead of \[0, 2\]'):
        doctor.torchvision_beside_torch()


def test_a_library_without_configs_is_named(monkeypatch):
    monkeypatch.setattr(doctor, 'LIBRARIES', ('torch',))
    with pytest.raises(FileNotFoundError, match='torch came without configs'):
        doctor.folders_of_configs()
