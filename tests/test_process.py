"""How processes start: OpenMP is told before torch is loaded, and files run no code."""

import os

import pytest

from vitplug.process import NOT_ONLY_TENSORS, ONLY_TENSORS, prepare


@pytest.mark.parametrize(
    ('users', 'spin_count', 'only_tensors'),
    [
        ({}, '1000', '1'),
        (dict(GOMP_SPINCOUNT='30 k'), '30 k', '1'),
        (dict(OMP_WAIT_POLICY='passive', TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD='1'), None, None),
    ],
)
def test_variables_of_the_user_are_kept(users, spin_count, only_tensors, monkeypatch):
    for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', ONLY_TENSORS, NOT_ONLY_TENSORS):
        monkeypatch.setenv(name, users.get(name, ''))
        if name not in users:
            monkeypatch.delenv(name)
    prepare()
    assert os.environ.get('GOMP_SPINCOUNT') == spin_count and os.environ.get(ONLY_TENSORS) == only_tensors
