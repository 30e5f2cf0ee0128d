"""GLUE's files are read as they are; its metrics are scikit-learn's and SciPy's. Needs no transformers."""

import numpy as np
import pytest
from glue_files import FORMATS, write_glue
from scipy import stats
from sklearn import metrics

from vitplug.text import pretrain
from vitplug.text.metrics import METRICS
from vitplug.text.tasks import TASKS, find_tasks, read_examples


@pytest.fixture(scope='module')
def glue(tmp_path_factory):
    return write_glue(tmp_path_factory.mktemp('glue'))


@pytest.mark.parametrize('name', FORMATS)
def test_made_files_of_every_task_are_read(name, glue):
    task = TASKS[name]
    for split in ('train', *task.dev.values()):
        found = read_examples(task, glue, split)
        is_good = ['good' in words[0].split() or 'bad' in words[0].split() for words in found.texts]
        # The first label of the made files is the one without the word.
        assert len({*zip(is_good, found.targets, strict=True)}) == (3 if name == 'MNLI' else 2)
        assert {len(words) for words in found.texts} == {len(task.columns) - 1}
        assert found.texts[0][0].endswith(' "') and found.num_left_out == 0


def test_labels_are_the_numbers_of_their_classes(tmp_path):
    folder = tmp_path / 'RTE'
    folder.mkdir()
    # Columns in another order, lines of Windows, and a sentence with quotation marks and spaces at its ends.
    folder.joinpath('dev.tsv').write_bytes(
        b'label\tindex\tsentence2\tsentence1\r\nnot_entailment\t0\t "b\t a \r\nentailment\t1\td"\tc\r\n'
    )
    found = read_examples(TASKS['RTE'], tmp_path, 'dev')
    assert found.texts == [(' a ', ' "b'), ('c', 'd"')] and found.targets == [1, 0]


def test_a_number_stays_as_it_is(tmp_path):
    (tmp_path / 'STS-B').mkdir()
    (tmp_path / 'STS-B' / 'dev.tsv').write_text('sentence1\tsentence2\tscore\na\tb\t0\nc\td\t5.000\ne\tf\t2.25')
    assert read_examples(TASKS['STS-B'], tmp_path, 'dev').targets == [0, 5, 2.25]


def test_lines_are_left_out_and_counted(glue, tmp_path):
    (tmp_path / 'CoLA').mkdir()
    text = (glue / 'CoLA' / 'dev.tsv').read_text()
    (tmp_path / 'CoLA' / 'dev.tsv').write_text(f'{text}gj04\t2\t\tof\ngj04\t1\tof\n\ngj04\t1\t*\tlast good\n')
    found = read_examples(TASKS['CoLA'], tmp_path, 'dev', leaves_out=True)
    assert (
        found.num_left_out == 3 and found.texts[-1] == ('last good',) and len(found.texts) == len(found.targets) == 13
    )


def test_task_by_name():
    assert [task.name for task in find_tasks('all')] == list(FORMATS)
    assert find_tasks('sts-b') == [TASKS['STS-B']]
    with pytest.raises(ValueError, match=r"TASK 'alll': .*: did you mean all\?"):
        find_tasks('alll')


def test_a_vocabulary_may_not_have_more_tokens_than_are_stored(tmp_path, monkeypatch, capsys):
    (tmp_path / 'a.txt').write_text('words')
    monkeypatch.setattr(pretrain, 'masked_lm', lambda *args, **settings: None)
    monkeypatch.setattr(pretrain, 'read_vocabulary', lambda path: range(65537))
    with pytest.raises(SystemExit):
        pretrain.main([str(tmp_path / 'a.txt'), '--out', str(tmp_path / 'out'), '--vocab', 'v.txt', '--device', 'cpu'])
    assert '--vocab v.txt: 65537 tokens: expected at most 65536' in capsys.readouterr().err


ORACLES = {
    'accuracy': metrics.accuracy_score,
    'f1': lambda expected, found: metrics.f1_score(expected, found, zero_division=0),
    'matthews': metrics.matthews_corrcoef,
    'pearson': lambda expected, found: stats.pearsonr(expected, found).statistic,
    'spearman': lambda expected, found: stats.spearmanr(expected, found).statistic,
}


@pytest.mark.parametrize('name', METRICS)
def test_metrics_are_the_library_s(name):
    generator = np.random.default_rng(0)
    for _ in range(50):
        expected, found = generator.integers(0, 2, (2, 30))
        if name in ('pearson', 'spearman'):
            expected, found = expected + generator.random(30).round(1), found + generator.random(30).round(1)
        assert METRICS[name](found, expected) == pytest.approx(100 * ORACLES[name](expected, found), abs=1e-9)


@pytest.mark.parametrize('name', METRICS)
@pytest.mark.parametrize('values', [([0, 0, 0], [0, 1, 0]), ([1, 1, 1], [0, 0, 0]), ([0, 1, 1], [0, 0, 0])])
def test_constant_answers(name, values):
    """What scikit-learn gives; correlations, which SciPy leaves undefined, are 0 as Matthews' is."""
    found, expected = map(np.array, values)
    correlates = name in ('pearson', 'spearman')
    assert METRICS[name](found, expected) == pytest.approx(0 if correlates else 100 * ORACLES[name](expected, found))
