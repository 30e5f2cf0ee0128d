"""The contract of somebody's own plug: hosts that refuse it are skipped with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAIRS = """
from torch import nn
from vitplug.plugs import Plug

class Pairs(Plug):
    name = 'pairs'

    def build_layer(self, plan):
        if plan.num_heads % 2:
            raise ValueError(f'block {plan.index} has {plan.num_heads} heads, and needs pairs of them')
        return {'map': Swap()}

class Swap(nn.Module):
    def forward(self, probs, site, carry):
        return probs.unflatten(2, (-1, 2)).flip(3).flatten(2, 3), carry
"""


@pytest.mark.integration
@pytest.mark.slow
def test_hosts_that_refuse_the_plug_are_skipped_with_the_reason(tmp_path):
    (tmp_path / 'own_plugs.py').write_text(PAIRS)
    options = ('--plug', 'own_plugs.Pairs', '-k', 'deepcopy', '-p', 'no:cacheprovider', '-n0', '-v')
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', str(TESTS / 'test_contract.py'), *options],
        env=os.environ | dict(PYTHONPATH=os.pathsep.join([str(tmp_path), str(TESTS.parent)])),
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert 'vit refuses the plug: block 0 has 3 heads, and needs pairs of them' in run.stdout
    assert all(
        f'[{host}-own_plugs.Pairs] PASSED' in run.stdout for host in ('vit-even-heads', 'swin', 'pit', 'mvit-cls')
    )
    assert '[vit-own_plugs.Pairs] SKIPPED' in run.stdout and '[mixer-own_plugs.Pairs] SKIPPED' in run.stdout
