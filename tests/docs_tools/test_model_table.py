"""The table of models: its rows, its verdicts and its document."""

from dataclasses import replace
from pathlib import Path

import pytest
from model_table import HOSTS, SECTIONS, UPERNET, write_document

from vitplug.config.paths import configs_folder

DOCUMENT = Path(__file__).resolve().parents[2] / 'docs' / 'models.md'
ROWS = [row for rows in SECTIONS.values() for row in rows]


def test_rows_are_different_models_with_configs():
    assert len({row.name for row in ROWS}) == len(ROWS) >= 45
    for row in ROWS:
        assert (configs_folder('vitplug') / f'{row.config}.py').is_file()


@pytest.mark.parametrize('row', [HOSTS[0], UPERNET[0]], ids=lambda row: row.name)
def test_counts_are_the_references(row):
    assert row.cells()[-1] == 'yes'


@pytest.mark.parametrize('wrong', [dict(parameters=5_717_417), dict(parameters='5.718'), dict(macs='1.255')], ids=str)
def test_other_figures_are_not_equal(wrong):
    assert replace(HOSTS[0], **wrong).cells()[-1] == 'no'
    assert replace(HOSTS[0], **wrong, note='why').cells()[-1] == 'no: why'


def test_references_count_in_their_digits():
    assert replace(HOSTS[0], parameters='5.717', macs=None).cells()[-1] == 'yes'
    assert replace(HOSTS[0], parameters='5.7').cells()[-1] == 'yes'


@pytest.mark.slow
def test_document_is_what_the_command_writes():
    assert write_document() == DOCUMENT.read_text()
