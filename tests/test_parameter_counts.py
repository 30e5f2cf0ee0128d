"""Exact parameter counts of the models in the table of models: timm's for the hosts, and those of the papers."""

import pytest
import torch
from model_table import SECTIONS
from test_configs import MODELS

from vitplug.lab.costs import build_model

ROWS = [row for rows in SECTIONS.values() for row in rows]
COUNTS = {model['Config']: model['Metadata']['Parameters'] for model in MODELS}


@pytest.mark.parametrize('row', ROWS, ids=lambda row: row.name)
def test_count(row):
    if row.changes:
        with torch.device('meta'):
            count = sum(p.numel() for p in build_model(row.read()).parameters())
    else:  # which `test_configs.py` counts
        count = COUNTS[f'configs/{row.config}.py']
    if isinstance(row.parameters, int):
        assert count == row.parameters
    else:
        decimals = len(row.parameters.partition('.')[2])
        assert f'{count / 1e6:.{decimals}f}' == row.parameters
