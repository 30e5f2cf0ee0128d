"""Exact parameter counts of the models in the table of models: timm's for the hosts, and those of the papers."""

import pytest
import torch
from model_table import SECTIONS

from vitplug.lab.costs import build_model

ROWS = [row for rows in SECTIONS.values() for row in rows]


@pytest.mark.sampled(3)
@pytest.mark.parametrize('row', ROWS, ids=lambda row: row.name)
def test_count(row):
    with torch.device('meta'):
        model = build_model(row.read())
    count = sum(p.numel() for p in model.parameters())
    if isinstance(row.parameters, int):
        assert count == row.parameters
    else:
        decimals = len(row.parameters.partition('.')[2])
        assert f'{count / 1e6:.{decimals}f}' == row.parameters
