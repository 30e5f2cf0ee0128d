"""GLUE's files are read as they are; a corpus is cut and masked as ELECTRA's. Needs no transformers."""

from types import SimpleNamespace

import numpy as np
import pytest
from glue_files import FORMATS, write_glue

from vitplug.lab.text.data import TASKS, MaskedWords, read_examples


@pytest.fixture(scope='module')
def glue(tmp_path_factory):
    return write_glue(tmp_path_factory.mktemp('glue'))


@pytest.mark.parametrize('name', FORMATS)
def test_made_files_of_every_task_are_read(name, glue):
    task = TASKS[name]
    for split in ('train', *task.dev):
        found = read_examples(name, glue, split)
        is_good = ['good' in words[0].split() or 'bad' in words[0].split() for words in found.texts]
        # The first label of the made files is the one without the word.
        assert len({*zip(is_good, found.targets, strict=True)}) == (3 if name == 'MNLI' else 2)
        assert {len(words) for words in found.texts} == {len(task.columns) - 1}
        assert found.texts[0][0].endswith(' "')


def test_columns_in_another_order_lines_of_windows_and_quotation_marks(tmp_path):
    (tmp_path / 'RTE').mkdir()
    (tmp_path / 'RTE' / 'dev.tsv').write_bytes(
        b'label\tindex\tsentence2\tsentence1\r\nnot_entailment\t0\t "b\t a \r\nentailment\t1\td"\tc\r\n'
    )
    found = read_examples('RTE', tmp_path, 'dev')
    assert found.texts == [(' a ', ' "b'), ('c', 'd"')] and found.targets == [1, 0]


def test_lines_are_left_out_and_counted(glue, tmp_path, capsys):
    (tmp_path / 'CoLA').mkdir()
    text = (glue / 'CoLA' / 'dev.tsv').read_text()
    (tmp_path / 'CoLA' / 'dev.tsv').write_text(f'{text}gj04\t2\t\tof\ngj04\t1\tof\n\ngj04\t1\t*\tlast good\n')
    found = read_examples('CoLA', tmp_path, 'dev', leave_out=True)
    assert found.texts[-1] == ('last good',) and len(found.texts) == len(found.targets) == 13
    assert '3 lines left out, 13 kept' in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"line 13: label '2', expected one of 0, 1; such lines: 3"):
        read_examples('CoLA', tmp_path, 'dev')


@pytest.mark.parametrize(
    ('name', 'split', 'content', 'message'),
    [
        ('RTE', 'dev', None, r'no such file: .*dev\.tsv; --data must have a folder RTE with train\.tsv, dev\.tsv'),
        (
            'MRPC',
            'train',
            b'Quality\t#1 String\n1\ta\n',
            'no column #2 String in its first line, which has Quality, #1',
        ),
        (
            'STS-B',
            'dev',
            b'sentence1\tsentence2\tscore\na\tb\t0\na\tb\t5.5\n',
            r"line 3: label '5\.5', expected a number",
        ),
        (
            'STS-B',
            'dev',
            b'sentence1\tsentence2\tscore\na\tb\tnan\n',
            "line 2: label 'nan', expected a number from 0 to 5",
        ),
        ('SST-2', 'dev', b'sentence\tlabel\n', r'dev\.tsv has no example|1 fields between tabs'),
        ('CoLA', 'dev', 'gj\t1\t\té'.encode('latin-1'), r'dev\.tsv is no UTF-8 text: byte 6 cannot be read'),
    ],
)
def test_wrong_files_are_named(name, split, content, message, tmp_path):
    (tmp_path / name).mkdir()
    if content is not None:
        (tmp_path / name / f'{split}.tsv').write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_examples(name, tmp_path, split)


def test_masks_and_segments():
    """15 % of each sequence, at least one, never special tokens; 85 % become [MASK]; nine of ten in two segments."""
    start, end, mask, word = 1, 2, 3, 7
    tokenizer = SimpleNamespace(cls_token_id=start, sep_token_id=end, mask_token_id=mask, all_special_ids=[0, 1, 2, 3])
    data = MaskedWords([np.full(n, word) for n in (1, 40, 100) * 200], tokenizer, seed=0)
    rows = [{name: np.array(value) for name, value in data[index].items()} for index in range(600)]
    chosen = [row['labels'] != -100 for row in rows]
    assert [place.sum() for place in chosen] == [1, 6, 15] * 200
    assert all((row['labels'][place] == word).all() for row, place in zip(rows, chosen, strict=True))
    is_mask = np.concatenate([row['input_ids'][place] == mask for row, place in zip(rows, chosen, strict=True)])
    assert abs(is_mask.mean() - 0.85) < 5 * (0.85 * 0.15 / len(is_mask)) ** 0.5
    assert all((row['input_ids'] == mask).sum() <= place.sum() for row, place in zip(rows, chosen, strict=True))
    two = [row for row in rows if (row['input_ids'] == end).sum() == 2]
    assert 510 < len(two) < 570
    for row in two:
        after = np.flatnonzero(row['input_ids'] == end)[0] + 1
        assert not row['token_type_ids'][:after].any() and row['token_type_ids'][after:].all()
    assert data[1] == data[1]
    data.set_epoch(1)
    assert any((np.array(data[i]['labels']) != rows[i]['labels']).any() for i in range(1, 6, 3))
