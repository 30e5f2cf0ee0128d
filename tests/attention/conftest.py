"""Tests may set sizes of tiles and thresholds; the next test finds them as they were."""

import pytest
import torch

from vitplug.attention import tuning


@pytest.fixture(autouse=True)
def _keep_tuning(monkeypatch):
    for name in (name for name in vars(tuning) if name.isupper()):
        monkeypatch.setattr(tuning, name, getattr(tuning, name))
    monkeypatch.setattr(torch, 'get_num_threads', torch.get_num_threads)
