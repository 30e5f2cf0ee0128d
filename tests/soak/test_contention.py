"""The table of times beside a busy process, from given times."""

import subprocess
import sys

import pytest
from soak import contention

STEPS = {
    (contention.BY_ITSELF, contention.QUIET): 0.1,
    (contention.BY_ITSELF, contention.BUSY): 0.5,
    (contention.OURS, contention.QUIET): 0.102,
    (contention.OURS, contention.BUSY): 0.2,
    (contention.PASSIVE, contention.QUIET): 0.12,
    (contention.PASSIVE, contention.BUSY): 0.19,
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the script with given times for its trainings."""

    def run(steps):
        busy = []

        def step_seconds(work_dir, setting, threads):
            assert threads == 2
            return steps[setting, contention.BUSY if busy else contention.QUIET]

        class Neighbour:
            def __init__(self, command):
                busy.append(command)

            def kill(self):
                busy.clear()

            def wait(self):
                assert not busy

        monkeypatch.setattr(contention, 'step_seconds', step_seconds)
        monkeypatch.setattr(contention, 'make_digit_scenes', lambda folder, **sizes: folder)
        monkeypatch.setattr(subprocess, 'Popen', Neighbour)
        monkeypatch.setattr(sys, 'argv', ['contention.py', '--work-dir', str(tmp_path)])
        monkeypatch.setenv('VITPLUG_DIGITS', '')
        status = contention.main()
        return status, capsys.readouterr().out.splitlines()

    return run


@pytest.mark.integration
def test_table(run):
    status, lines = run(STEPS)
    assert status == 0 and lines[-1] == 'passed'
    assert '| GOMP_SPINCOUNT=1000 | 102 (102 to 102), 1.02 x | 200 (200 to 200), 2.00 x |' in lines
    rounds = [line for line in lines if line.startswith('round ')]
    assert len(rounds) == 18
    assert [line.partition(': ')[2] for line in rounds[6:12]] == [line.partition(': ')[2] for line in rounds[5::-1]]


@pytest.mark.integration
def test_missed_bound_fails(run):
    status, lines = run({**STEPS, (contention.OURS, contention.BUSY): 0.24})
    assert status == 1 and lines[-1] == f'FAILED: {contention.OURS} {contention.BUSY}'


def test_training_is_timed_after_its_first_entry(tmp_path):
    path = tmp_path / '2026' / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('{"loss": 2.0, "time": 9.0}\n{"loss": 1.0, "time": 0.5}\n{"accuracy/top1": 10.0, "time": 7.0}\n')
    assert list(contention.logged_seconds(tmp_path)) == [9.0, 0.5]
