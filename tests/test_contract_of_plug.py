"""The contract of somebody's own plug: hosts that refuse it are skipped with the reason, and counted by host."""

import os
import re
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

class Refusing(Plug):
    name = 'refusing'

    def build_layer(self, plan):
        raise ValueError('never')
"""


def summary_of(plug, folder):
    """Exit status of a run with one clause, and (passed, failed, skipped, reason) by host."""
    (folder / 'own_plugs.py').write_text(PAIRS)
    path = os.pathsep.join([str(folder), str(TESTS.parent)])
    options = ('--plug', plug, '-k', 'deepcopy', '-p', 'no:cacheprovider', '-n0')
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', str(TESTS / 'test_contract.py'), *options],
        env=os.environ | dict(PYTHONPATH=path),
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    rows = re.findall(r'^(\S+) +(\d+) +(\d+) +(\d+)(?:  refused: (.*))?$', run.stdout, re.M)
    assert rows, run.stdout + run.stderr
    return run.returncode, {host: (*map(int, counts), reason) for host, *counts, reason in rows}


@pytest.mark.integration
@pytest.mark.slow
def test_hosts_that_refuse_the_plug_are_skipped_with_the_reason(tmp_path):
    status, hosts = summary_of('own_plugs:Pairs', tmp_path)
    assert status == 0
    assert hosts['vit'] == (0, 0, 1, 'block 0 has 3 heads, and needs pairs of them')
    assert "socket 'map', which block 0 does not offer" in hosts['mixer'][3]
    assert all(hosts[host] == (1, 0, 0, '') for host in ('vit-even-heads', 'swin', 'pit', 'mvit-cls'))


@pytest.mark.integration
@pytest.mark.slow
def test_a_plug_that_no_host_takes_does_not_pass(tmp_path):
    status, hosts = summary_of('own_plugs.Refusing', tmp_path)
    assert status == 1
    assert {found[:3] for found in hosts.values()} == {(0, 0, 1)}
