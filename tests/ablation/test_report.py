"""The report of grids with made up figures: finished, running, damaged."""

import csv
import json
import os
import re
import shutil
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from made_grid import EFFECTS, LABELS, METRIC, add_cell, cell_folder, make_grid, value_of
from PIL import Image
from scipy import stats

from vitplug.ablation import report_pictures
from vitplug.ablation.records import State, read_cells, read_grid
from vitplug.ablation.report import as_json, read_report, write_report
from vitplug.ablation.summary import curve, points_per_unit, summarise, verdict
from vitplug.statistics.seeds import seeds_needed

FILES = 'report.csv', 'report.html', 'report.json', 'report.md', 'report.tex', 'report_curves.png', 'report_forest.png'
TEX_END = 2 * chr(92)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A finished grid with its report."""
    folder = make_grid(tmp_path_factory.mktemp('grids') / 'finished')
    write_report(folder)
    return folder


@pytest.fixture
def running(tmp_path):
    """A grid with a failed, an unfinished and a missing cell."""
    folder = make_grid(tmp_path / 'running')
    shutil.rmtree(cell_folder(folder, 'gab+residual', 4))
    failed = cell_folder(folder, 'cb', 3)
    (failed / 'done.json').unlink()
    error = 'RuntimeError: a <b> | c & d'
    (failed / 'failed.json').write_text(json.dumps(dict(error=error, exit_status=1, attempt=1)))
    unfinished = cell_folder(folder, 'gab', 2)
    (unfinished / 'done.json').unlink()
    lines = (unfinished / 'validations.jsonl').read_text().splitlines()
    # The last line is being written.
    (unfinished / 'validations.jsonl').write_text('\n'.join([*lines[:3], lines[3][:20]]))
    return folder


def report_of(folder):
    content = json.loads((folder / 'report.json').read_text())
    return content, {variant['label']: variant for variant in content['variants']}


# --- figures ---


def test_report_has_every_file_and_nothing_else(finished):
    assert sorted(path.name for path in finished.iterdir()) == sorted([*FILES, 'cells', 'grid.json'])


def test_figures_are_scipys_of_the_cells(finished):
    content, variants = report_of(finished)
    assert content['complete'] and [*variants] == [*LABELS]
    values = {label: np.array([value_of(label, seed) for seed in range(5)]) for label in LABELS}
    tests = {label: stats.ttest_rel(values[label], values['none']) for label in LABELS[1:]}
    for label, test in tests.items():
        found, ends = variants[label]['comparison'], test.confidence_interval(0.95)
        assert found['p'] == pytest.approx(test.pvalue)
        assert (found['low'], found['high']) == pytest.approx((ends.low, ends.high))
        assert found['seeds'] == [0, 1, 2, 3, 4]
        assert found['p_holm'] >= found['p']
    smallest = min(tests, key=lambda label: tests[label].pvalue)
    assert variants[smallest]['comparison']['p_holm'] == pytest.approx(4 * tests[smallest].pvalue)
    none = variants['none']
    assert none['mean'] == pytest.approx(values['none'].mean()) and none['sd'] == pytest.approx(
        values['none'].std(ddof=1)
    )
    assert none['comparison'] is None and none['in_words'] == 'baseline'
    assert (none['seconds'], none['memory_mib'], none['parameters']) == (102.0, 204, 311_434)
    words = {label: variants[label]['in_words'] for label in LABELS[1:]}
    assert words == {
        'cb': 'better than none',
        'gab': 'worse than none',
        'gab+residual': 'equal within 0.3',
        'residual(alpha=0.25)': 'equal within 0.3',
    }


def test_equality_needs_a_margin_that_the_metric_or_the_grid_has(tmp_path):
    words = {}
    for name, metric, margin in (('none', 'mine/score', None), ('wide', 'mine/score', 2.0), ('small', METRIC, 0.01)):
        make_grid(tmp_path / name, metric=metric, **({} if margin is None else dict(margin=margin)))
        summary = summarise(tmp_path / name)
        words[name] = [verdict(row, summary) for row in summary.compared]
    assert words['none'] == ['better than none', 'worse than none', *['no difference shown'] * 2]
    assert words['wide'] == [
        'better than none, by less than 2',
        'worse than none, by less than 2',
        *['equal within 2'] * 2,
    ]
    assert words['small'] == words['none']


def test_seeds_that_find_the_margin_are_told(finished, capsys):
    write_report(finished)
    content, variants = report_of(finished)
    sd = variants['cb']['comparison']['sd']
    assert f'cb {seeds_needed(0.3, sd)},' in capsys.readouterr().out and content['statistics']['margin'] == 0.3


def test_latex_table_has_what_tex_would_read_as_commands_as_text(tmp_path):
    make_grid(tmp_path, labels=('none', 'lr=1_0 & 50%'))
    write_report(tmp_path)
    lines = (tmp_path / 'report.tex').read_text().splitlines()
    [row] = [line for line in lines if line.startswith('lr')]
    assert row.startswith(r'lr=1\_0 \& 50\% & 5 of 5 &') and row.endswith(TEX_END)
    columns = lines[0].removeprefix(r'\begin{tabular}{').removesuffix('}')
    assert {len(columns)} == {line.replace(r'\&', '').count('&') + 1 for line in lines if line.endswith(TEX_END)}


def test_shares_of_one_are_reported_in_points(tmp_path):
    make_grid(tmp_path, metric='coco/segm_mAP', scale=0.01, labels=('none', 'cb'))
    found = summarise(tmp_path).rows
    expected = [value_of('cb', seed) - value_of('none', seed) for seed in range(5)]
    assert found[1].comparison.difference == pytest.approx(np.mean(expected)) and found[0].mean > 80
    assert points_per_unit('accuracy/top1') == points_per_unit('mIoU') == 1
    assert points_per_unit('coco/bbox_mAP') == points_per_unit('val/segm_mAP_50') == 100


def test_csv_has_a_row_for_each_cell(finished):
    rows = list(csv.DictReader((finished / 'report.csv').open()))
    assert len(rows) == 25 and {row['state'] for row in rows} == {'done'}
    row = next(row for row in rows if (row['label'], row['seed']) == ('gab', '3'))
    assert float(row['value']) == value_of('gab', 3) and row['seconds'] == '103.0'
    assert float(row['difference']) == pytest.approx(value_of('gab', 3) - value_of('none', 3))


# --- while it runs ---


def test_cells_that_are_not_done_are_named(running, capsys):
    write_report(running)
    content, variants = report_of(running)
    assert not content['complete']
    assert variants['cb']['cells'] == dict(done=4, failed=1, unfinished=0, missing=0)
    assert variants['cb']['comparison']['seeds'] == [0, 1, 2, 4]
    assert variants['gab']['comparison']['seeds'] == [0, 1, 3, 4]
    assert variants['gab+residual']['cells']['missing'] == 1
    printed = capsys.readouterr().out
    assert '22 of 25 cells done, 1 failed, 1 unfinished, 1 missing\npreliminary' in printed
    assert 'failed: cb, seed 3: RuntimeError: a <b> | c & d (exit status 1)' in printed
    html = (running / 'report.html').read_text()
    assert 'RuntimeError: a &lt;b&gt; | c &amp; d (exit status 1)' in html and 'preliminary' in html


def test_table_is_the_same_on_the_terminal_and_in_markdown(running, capsys):
    write_report(running)
    printed, written = capsys.readouterr().out, (running / 'report.md').read_text()
    for label in LABELS:
        [line] = [line for line in printed.splitlines() if line.startswith(f'{label} ')]
        [row] = [line for line in written.splitlines() if line.startswith(f'| {label} |')]
        assert re.split(r'\s{2,}', line) == [text.strip() for text in row.strip('|').split('|') if text.strip()]


def test_grid_without_any_cell_has_a_report(tmp_path):
    make_grid(tmp_path)
    shutil.rmtree(tmp_path / 'cells')
    write_report(tmp_path)
    content, variants = report_of(tmp_path)
    assert variants['cb']['in_words'] == 'too few seeds' and variants['cb']['comparison']['difference'] is None
    assert {cell['state'] for cell in content['cells']} == {'missing'}


def test_baseline_that_lacks_seeds_is_no_pair(tmp_path):
    make_grid(tmp_path, labels=('none', 'cb'))
    for seed in (0, 1, 2):
        (cell_folder(tmp_path, 'none', seed) / 'done.json').unlink()
    write_report(tmp_path)
    assert report_of(tmp_path)[1]['cb']['comparison']['seeds'] == [3, 4]
    assert '| cb | 5 of 5 (2 paired) |' in (tmp_path / 'report.md').read_text()


def test_report_is_replaced(tmp_path):
    make_grid(tmp_path, seeds=range(2))
    write_report(tmp_path)
    assert report_of(tmp_path)[1]['cb']['in_words'] == 'too few seeds'
    make_grid(tmp_path)
    write_report(tmp_path)
    assert report_of(tmp_path)[1]['cb']['in_words'] == 'better than none'
    assert not [*tmp_path.glob('.*')]


def test_training_that_diverged_has_failed(tmp_path):
    make_grid(tmp_path, labels=('none', 'cb'))
    path = cell_folder(tmp_path, 'cb', 1) / 'done.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(value=float('nan'))))
    [_, cb] = summarise(tmp_path).rows
    assert cb.comparison.seeds == (0, 2, 3, 4)
    assert [cell.error for cell in cb.of(State.FAILED)] == ['finished, but its accuracy/top1 is nan']


def test_settings_that_are_no_numbers_in_json(tmp_path):
    make_grid(tmp_path, labels=('none', 'cb'), axes={'optim_wrapper.clip_grad.max_norm': [1.0, float('inf')]})
    write_report(tmp_path)
    assert report_of(tmp_path)[0]['grid']['facts']['axes'] == {'optim_wrapper.clip_grad.max_norm': [1.0, 'Infinity']}


def test_curves_use_common_steps_of_finished_cells(running):
    grid = read_grid(running)
    cells = [cell for cell in read_cells(running, grid) if cell.label == 'gab']
    found = curve(cells, scale=1.0)
    assert found.seeds == 4 and found.steps.tolist() == [*range(1, 11)]
    last = [value_of('gab', seed) for seed in (0, 1, 3, 4)]
    assert found.mean[-1] == pytest.approx(np.mean(last)) and found.sd[-1] == pytest.approx(np.std(last, ddof=1))
    only = curve([cell for cell in cells if cell.state is State.UNFINISHED], scale=100.0)
    assert (only.seeds, only.steps.tolist(), only.sd.tolist()) == (1, [1, 2, 3], [0, 0, 0])
    assert curve([], 1.0) is None


# --- read again ---


@pytest.mark.parametrize('grid', ['finished', 'running'])
def test_report_that_is_read_is_the_one_that_was_written(grid, request):
    folder = request.getfixturevalue(grid)
    write_report(folder)
    found = read_report(folder / 'report.json')
    assert [row.comparison for row in found.rows] == [row.comparison for row in summarise(folder).rows]
    assert json.loads(json.dumps(as_json(found))) == report_of(folder)[0]


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (dict(format=2), 'format = 2, must be 1: write it again'),
        (dict(cells=[dict(label='cb')]), r"is no report of a grid \(KeyError: 'state'\)"),
        (dict(grid=dict(labels=['none'])), r'is no report of a grid \(KeyError'),
        (dict(variants=[]), r"is no report of a grid \(KeyError: 'none'\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else '',
)
def test_damaged_report_is_named(finished, tmp_path, change, said):
    path = tmp_path / 'report.json'
    path.write_text(json.dumps(report_of(finished)[0] | change))
    with pytest.raises(ValueError, match=f'report.json: {said}'):
        read_report(path)


@pytest.mark.parametrize(
    ('error', 'published'),
    [
        ('cannot read /home/someone/data/x.png: no image', 'cannot read x.png: no image'),
        ("No such file: '/srv/data/7.png'", "No such file: '7.png'"),
        ('work_dirs/a/b.pth is no checkpoint; see https://example.org/a/b', None),
        ('expected s/iteration, 1/2 and ~/x as they are', None),
    ],
)
def test_errors_in_the_json_name_no_folder_of_the_machine(tmp_path, error, published):
    make_grid(tmp_path, labels=('none', 'cb'))
    failed = cell_folder(tmp_path, 'cb', 3)
    (failed / 'done.json').unlink()
    (failed / 'failed.json').write_text(json.dumps(dict(error=error, exit_status=None)))
    write_report(tmp_path)
    [cell] = [cell for cell in report_of(tmp_path)[0]['cells'] if cell['state'] == 'failed']
    assert cell['error'] == (published or error)


# --- damaged folders ---


@pytest.mark.parametrize(
    ('file', 'content', 'error', 'said'),
    [
        ('grid.json', None, FileNotFoundError, 'has no grid.json: name the folder of a grid'),
        ('grid.json', '{"labels": ', ValueError, r'grid.json: is no JSON'),
        ('grid.json', '[]', ValueError, 'grid.json: must hold an object, not list'),
        (
            'grid.json',
            '{"labels": ["a"], "baseline": "a"}',
            ValueError,
            "has no 'seeds', 'metric', 'greater_is_better'",
        ),
        ('cells/cb_seed1_0123456789/cell.json', '', ValueError, r'cb_seed1_0123456789/cell.json: is no JSON'),
        ('cells/cb_seed1_0123456789/cell.json', '{"value": 1}', ValueError, r"cell.json: has no 'label', 'seed': move"),
    ],
)
def test_damaged_file_is_named(tmp_path, file, content, error, said):
    make_grid(tmp_path, labels=('none', 'cb'))
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(error, match=said):
        write_report(tmp_path)
    assert not [*tmp_path.glob('report*')]


@pytest.mark.parametrize(
    ('file', 'content', 'said'),
    [
        ('done.json', '', 'done.json: is no JSON'),
        ('done.json', '{"value": ' + '9' * 400 + '}', 'finished, but its None is 9999'),
        ('validations.jsonl', '{\n{}\n', 'validations.jsonl, line 1: is no record'),
        ('validations.jsonl', '{}\n', 'validations.jsonl, line 1: is no record'),
    ],
)
def test_cell_with_a_damaged_record_has_failed(tmp_path, file, content, said):
    make_grid(tmp_path, labels=('none', 'cb'))
    (cell_folder(tmp_path, 'cb', 1) / file).write_text(content)
    write_report(tmp_path)
    [cell] = [cell for cell in report_of(tmp_path)[0]['cells'] if cell['state'] == 'failed']
    assert (cell['label'], cell['seed']) == ('cb', 1) and said in cell['error']


@pytest.mark.parametrize('name', ['failed.json', 'done.json'])
def test_note_that_is_a_pipe_ends_nothing(tmp_path, name):
    make_grid(tmp_path, labels=('none', 'cb'))
    here = cell_folder(tmp_path, 'cb', 1)
    (here / 'done.json').unlink()
    os.mkfifo(here / name)
    write_report(tmp_path)
    [cell] = [cell for cell in report_of(tmp_path)[0]['cells'] if cell['state'] == 'failed']
    assert f'{name}: is no regular file' in cell['error']


def test_labels_and_errors_are_text_wherever_they_are_written(tmp_path):
    """No formula of matplotlib or of a spreadsheet, and no HTML; of the machine's paths, the last part is published."""
    labels = ('none', r'path=$\frac$', '=cmd()', '<b>x')
    make_grid(tmp_path, labels=labels, base='/home/someone/base.py', options={'load_from': '/home/someone/a.pth'})
    write_report(tmp_path)
    content, variants = report_of(tmp_path)
    assert [*variants] == [*labels] and 'someone' not in (tmp_path / 'report.json').read_text()
    assert content['grid']['facts']['options'] == {'load_from': 'a.pth'}
    assert "'=cmd()" in {row['label'] for row in csv.DictReader((tmp_path / 'report.csv').open())}
    assert '<b' not in (tmp_path / 'report.md').read_text()


def test_cells_of_other_data_or_code_are_named(tmp_path, capsys):
    make_grid(tmp_path, labels=('none', 'cb'))
    for label, seed, mark, code in (
        ('none', 0, 'a', 'x'),
        ('cb', 0, 'b', 'x'),
        ('none', 1, 'a', 'y'),
        ('cb', 1, 'a', 'x'),
    ):
        here = cell_folder(tmp_path, label, seed)
        for name, more in (('cell.json', dict(data={'train': ['/d/train', mark]})), ('done.json', dict(code=[code]))):
            (here / name).write_text(json.dumps(json.loads((here / name).read_text()) | more))
    write_report(tmp_path)
    printed = capsys.readouterr().out
    assert 'not comparable without care: train (/d/train) held other files for cb seed 0\n' in printed
    assert 'not comparable without care: the code of vitplug was another for none seed 1\n' in printed


def test_one_validation_is_no_curve(tmp_path):
    make_grid(tmp_path, labels=('none', 'cb'))
    write_report(tmp_path)
    assert (tmp_path / 'report_curves.png').is_file()
    for path in tmp_path.glob('cells/*/validations.jsonl'):
        path.write_text(path.read_text().splitlines(keepends=True)[-1])
    write_report(tmp_path)
    assert not (tmp_path / 'report_curves.png').exists() and (tmp_path / 'report_forest.png').is_file()
    assert 'Learning curves' not in (tmp_path / 'report.html').read_text()


def test_baseline_must_be_a_label(tmp_path):
    make_grid(tmp_path, baseline='plain')
    with pytest.raises(ValueError, match="baseline = 'plain' is none of the labels"):
        read_grid(tmp_path)


def test_two_cells_of_one_seed_are_refused_and_other_labels_left_out(tmp_path):
    make_grid(tmp_path, labels=('none', 'cb'))
    add_cell(tmp_path, 'gab', 0)
    assert len(read_cells(tmp_path, read_grid(tmp_path))) == 10
    shutil.copytree(cell_folder(tmp_path, 'cb', 1), tmp_path / 'cells' / 'cb_seed1_ffff')
    with pytest.raises(ValueError, match="cb_seed1_0123456789 and cells/cb_seed1_ffff are both 'cb' with seed 1"):
        read_cells(tmp_path, read_grid(tmp_path))


# --- pictures and page ---


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ('meta', 'img'):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_page_needs_no_other_file(finished):
    page = Page((finished / 'report.html').read_text())
    assert not page.open
    kinds = [tag for tag, _ in page.tags]
    assert not {'script', 'link', 'iframe'} & {*kinds} and kinds.count('img') == 2
    for _, attributes in page.tags:
        for name in ('src', 'href'):
            assert attributes.get(name, 'data:').startswith('data:')
    assert 'url(' not in (finished / 'report.html').read_text()
    assert ('meta', dict(name='viewport', content='width=device-width, initial-scale=1')) in page.tags


def test_page_says_what_the_table_says(finished):
    page = Page((finished / 'report.html').read_text())
    text = ' '.join(page.texts)
    for row in (finished / 'report.md').read_text().splitlines()[2 : 2 + len(LABELS)]:
        assert all(cell.strip() in text for cell in row.strip('|').split('|'))
    assert 'cb: better than none; gab: worse than none; gab+residual, residual(alpha=0.25): equal within 0.3.' in text
    # The config of each variant against the baseline's, and the facts of the grid.
    assert text.count('plugs: <') == 4 and 'python tools/ablate.py base.py' in text


@pytest.mark.parametrize('name', ['report_forest.png', 'report_curves.png'])
def test_pictures_are_drawn(finished, name):
    image = np.asarray(Image.open(finished / name).convert('RGB'), int)
    assert min(image.shape[:2]) > 300 and image.std() > 10
    better, worse = (np.array(colour) for colour in ((0, 0x72, 0xB2), (0xD5, 0x5E, 0)))
    for colour in (better, worse):
        assert (np.abs(image - colour).sum(axis=-1) < 12).sum() > 50


def test_forest_marks_lie_at_the_differences(finished, monkeypatch):
    """What is drawn, not its pixels: intervals, means and seeds."""
    figures = []
    monkeypatch.setattr(report_pictures, 'png', lambda figure: figures.append(figure) or b'')
    summary = summarise(finished)
    report_pictures.forest_picture(summary)
    [ax] = figures[0].axes
    drawn = [line.get_xdata() for line in ax.lines[1:]]
    assert [label.get_text() for label in ax.get_yticklabels()] == [*LABELS[1:]]
    for row, (seeds, interval, mean) in zip(summary.compared, zip(*[iter(drawn)] * 3, strict=True), strict=True):
        assert seeds == pytest.approx([value_of(row.label, s) - value_of('none', s) for s in range(5)])
        assert interval == pytest.approx([row.comparison.low, row.comparison.high])
        assert mean == pytest.approx([EFFECTS[row.label]], abs=0.3) and mean[0] == row.comparison.difference
    assert 'right is better' in ax.get_xlabel()


def test_many_variants_are_cut_and_said(tmp_path):
    labels = ('none', *(f'plug{i}' for i in range(30)))
    EFFECTS.update(dict.fromkeys(labels, 0.0))
    make_grid(tmp_path, seeds=range(1), labels=labels)
    image = Image.open(BytesIO(report_pictures.curves_picture(summarise(tmp_path))))
    assert image.height < 5000
    assert len(summarise(tmp_path).compared) == 30 and METRIC in (tmp_path / 'grid.json').read_text()
