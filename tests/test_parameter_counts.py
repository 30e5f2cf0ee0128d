"""Exact parameter counts of models that the table of models makes of a config by changing it: timm's, and the papers'.

`test_configs.py` counts the configs as they are.
"""

import pytest
import torch
from references import ROWS, equals

from vitplug.lab.costs import build_model


@pytest.mark.parametrize('row', [row for row in ROWS if row.changes], ids=lambda row: row.name)
def test_count(row):
    with torch.device('meta'):
        model = build_model(row.read())
    assert equals(sum(p.numel() for p in model.parameters()), row.parameters)
