"""The doctor names what is broken and how to repair it."""

import re
import subprocess
import sys

import pytest

from vitplug import doctor


@pytest.mark.integration
def test_all_is_in_order(capsys):
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert 'all is in order' in out and 'BROKEN' not in out
    assert len(re.findall(r'ok +a step of \w+ +loss', out)) == 3


@pytest.mark.integration
def test_processes_of_torchrun_reach_each_other():
    command = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node=2', '-m', 'vitplug', 'doctor']
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and re.search(r'ok +processes +2; the sum of a million numbers', done.stdout)


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'mmdet', None)
    monkeypatch.setattr(doctor, 'TRAINING', {})
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert re.search(r'BROKEN +mmdet +ModuleNotFoundError: ', out) and 'a missing package   pip install -e .' in out
