"""The table of models: its rows, its verdicts and its document."""

from dataclasses import replace
from pathlib import Path

import pytest
from model_table import HOSTS, UPERNET, write_document

DOCUMENT = Path(__file__).resolve().parents[2] / 'docs' / 'models.md'


@pytest.mark.parametrize('row', [HOSTS[0], UPERNET[0]], ids=lambda row: row.name)
def test_counts_are_the_references(row):
    assert row.cells()[-1] == 'yes'


@pytest.mark.parametrize('wrong', [dict(parameters=5_717_417), dict(macs='1.255')], ids=str)
def test_other_figures_are_not_equal(wrong):
    assert replace(HOSTS[0], **wrong).cells()[-1] == 'no'
    assert replace(HOSTS[0], **wrong, note='why').cells()[-1] == 'no: why'


@pytest.mark.slow
def test_document_is_what_the_command_writes():
    assert write_document() == DOCUMENT.read_text()
