"""Runs ``resume_cases.py`` in a process of its own: it forks, which is safe only where no other test left threads."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.integration
@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_alike():
    cases = Path(__file__).with_name('resume_cases.py')
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:xdist', '-p', 'no:cacheprovider', cases]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout[-6000:]
    assert ' passed' in result.stdout
