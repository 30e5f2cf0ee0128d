"""Digits for the trainings of this folder."""

import pytest

from vitplug.datasets.digit_scenes import make_digit_scenes


@pytest.fixture(scope='session')
def digits(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'digits'
    return make_digit_scenes(root, num_classification=(40, 20), num_scenes=(1, 1), log=lambda line: None)


@pytest.fixture
def digits_variable(digits, monkeypatch):
    """Configs find the digits."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))
