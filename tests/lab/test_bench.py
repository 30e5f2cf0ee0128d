"""What `bench` counts and prints."""

import json

import pytest
import torch

from vitplug.lab import bench


def test_operations_and_calls_are_counted():
    x = torch.zeros(3)
    assert bench.operations(lambda: (x + 1) * 2) == 2

    def called():
        pass

    assert bench.python_calls(lambda: (called(), called())) == 3


def test_overhead_of_a_plug_is_above_plain():
    counts = bench.overhead('deit', ['plain', 'gab'])
    assert list(counts)[-2:] == ['vitplug plain', 'vitplug gab']
    assert all(a < b for a, b in zip(counts['vitplug plain'], counts['vitplug gab'], strict=True))


@pytest.mark.integration
def test_tables_are_printed_and_written(tmp_path, capsys):
    argv = ['--hosts', 'deit', '--plugs', 'plain', 'cb', '--size', '32', '--batch', '1', '--seconds', '0', '--out']
    assert bench.main([*argv, str(tmp_path)]) == 0
    written = json.loads((tmp_path / 'bench.json').read_text())
    assert len(written['tables']) == 3 and 'deit, 32 x 32, batch 1, training, 5 rounds' in written['tables']
    assert 'vitplug cb' in capsys.readouterr().out
