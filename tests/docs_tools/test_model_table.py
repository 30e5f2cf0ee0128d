"""The table of models: its rows, its verdicts and its document."""

from dataclasses import replace
from pathlib import Path

import model_table
import pytest
from model_table import HOSTS, SECTIONS, UPERNET, Row, main, write_document

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


def test_changes_make_another_model():
    row = replace(HOSTS[0], changes={'model.backbone.img_size': 64})
    cells = row.cells()
    assert cells[2] == '64x64' and cells[1].endswith('changed') and cells[-1] == 'no'


def test_document_lists_every_row():
    text = DOCUMENT.read_text()
    assert text.startswith(model_table.TITLE) and model_table.COMMAND in text
    assert all(f'\n| {row.name} | ' in text for row in ROWS)


@pytest.mark.slow
def test_document_is_what_the_command_writes():
    assert write_document() == DOCUMENT.read_text()


@pytest.fixture
def one_row(monkeypatch):
    row = Row('DeiT-Ti', HOSTS[0].config, HOSTS[0].parameters, '1.254')
    monkeypatch.setattr(model_table, 'SECTIONS', {'Hosts': [row]})


def test_command_prints_and_writes_and_writes_again(one_row, tmp_path, capsys):
    path = tmp_path / 'models.md'
    main(['--out', str(path)])
    first = path.read_text()
    assert '| DeiT-Ti | ' in first and '| DeiT-Ti | ' in capsys.readouterr().out
    path.write_text(f'{model_table.TITLE}\nold')
    main(['--out', str(path)])
    assert path.read_text() == first and [file.name for file in tmp_path.iterdir()] == ['models.md']


def test_other_files_are_not_overwritten(one_row, tmp_path, capsys):
    path = tmp_path / 'notes.md'
    path.write_text('precious')
    with pytest.raises(SystemExit) as end:
        main(['--out', str(path)])
    assert end.value.code == 2 and path.read_text() == 'precious'
    assert 'notes.md' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(['--out', str(tmp_path / 'none' / 'models.md')])
    assert 'no folder' in capsys.readouterr().err
