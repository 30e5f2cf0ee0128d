"""Digits for the trainings of this folder."""

import pytest
from small_models import small_digits


@pytest.fixture(scope='session')
def digits(tmp_path_factory):
    return small_digits(tmp_path_factory, (40, 20), (1, 1))


@pytest.fixture
def digits_variable(digits, monkeypatch):
    """Configs find the digits."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
