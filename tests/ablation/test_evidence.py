"""docs/evidence: its grids can be run, and its page is what the reports beside it give."""

import json
import re
import runpy
import shutil
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from made_grid import add_cell, cell_folder, make_grid
from PIL import Image

from vitplug.ablation.grid import make_variants, read_grid_file
from vitplug.ablation.mechanism_claims import CLAIMS
from vitplug.ablation.mechanism_rows import as_json, row_of
from vitplug.ablation.report import read_report, write_report
from vitplug.runs.metrics import choose_metric

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / 'docs' / 'evidence'
STUDY = EVIDENCE / 'cb'
PAGES = [EVIDENCE, STUDY, EVIDENCE / 'photographs']
GRIDS = [path for page in PAGES for path in sorted(page.glob('*.py'))]
REPORTS = [path for page in PAGES for path in sorted(page.glob('*.json'))]
TOOL = runpy.run_path(str(ROOT / 'docs' / 'tools' / 'evidence.py'))


# --- the grids ---


@pytest.mark.parametrize('path', GRIDS, ids=lambda path: path.stem)
def test_grid_is_the_one_of_the_page(path, monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY / 'settings'))
    grid = read_grid_file(path)
    variants = make_variants(grid)
    assert variants[0].label == 'none' and choose_metric(variants[0].cfg, grid.metric) == grid.metric
    text = (path.parent / 'README.md').read_text()
    [row] = re.findall(rf'^\| \[{path.stem}\]\({path.name}\) \|.*$', text, re.MULTILINE)
    seeds, cells = (int(number) for number in row.split('|')[-4:-2])
    assert (seeds, cells) == (len(grid.seeds), len(grid.seeds) * len(variants))
    [costs] = re.findall(rf'^\| {path.stem} \| ([\d,]+) \|', text, re.MULTILINE)
    assert int(costs.replace(',', '')) == variants[0].cfg.train_cfg.max_iters
    name = path.relative_to(EVIDENCE).with_suffix('').as_posix()
    command = f'python tools/ablate.py docs/evidence/{name}.py --out work_dirs/evidence/{name}'
    assert command in text and f'{command}\n' in path.read_text()


def test_checkpoint_is_that_of_the_training_before():
    """The plain model that plugs are added to is trained by the command above the grid's, until the file named."""
    commands = re.findall(r'^python (.*)$', (EVIDENCE / 'README.md').read_text(), re.MULTILINE)
    index = next(i for i, command in enumerate(commands) if 'evidence/stock.py' in command)
    trained = Path(commands[index - 1].removeprefix('tools/train.py '))
    loaded = Path(make_variants(read_grid_file(EVIDENCE / 'stock.py'))[0].cfg.load_from)
    assert loaded.parent == Path('work_dirs', trained.stem)
    assert re.search(r'-(\d+)i_', trained.stem)[1] == loaded.stem.removeprefix('iter_')


# --- the page of the repository ---


@pytest.mark.parametrize('folder', PAGES, ids=lambda path: path.name)
def test_page_is_what_the_reports_give(folder):
    page = (folder / 'README.md').read_text()
    assert TOOL['fill'](page, TOOL['parts'](TOOL['read_results'](folder))) == page, 'python docs/tools/evidence.py'


@pytest.mark.parametrize('report', REPORTS, ids=lambda path: path.stem)
def test_report_is_of_a_grid_and_names_no_machine(report):
    assert report.with_suffix('.py') in GRIDS
    assert not re.search(r'(?<![\w.:/])/\w+/|[Hh]ostname|[\w.]+@\w+', report.read_text())
    # What it says of variants is what its cells give.
    content = json.loads(report.read_text())
    for variant, row in zip(content['variants'], read_report(report).rows, strict=True):
        found = row.comparison and (row.comparison.difference, row.comparison.low, row.comparison.p_holm)
        stored = variant['comparison'] and tuple(variant['comparison'][key] for key in ('difference', 'low', 'p_holm'))
        assert (variant['label'], stored) == (row.label, pytest.approx(found))


@pytest.mark.integration
@pytest.mark.parametrize('folder', PAGES, ids=lambda path: path.name)
def test_pictures_are_those_of_the_reports(folder):
    drawn = {
        picture.name: picture.draw(result.summary)
        for result in TOOL['read_results'](folder)
        for picture in (*TOOL['pictures'](result), *TOOL['pictures_of_mechanisms'](result))
    }
    found = {path.relative_to(folder).as_posix() for path in (*folder.glob('*.png'), *folder.glob('mechanisms/*.png'))}
    assert found == {*drawn}, 'python docs/tools/evidence.py'
    for name, png in drawn.items():
        committed, ours = Image.open(folder / name), Image.open(BytesIO(png))
        assert committed.size == ours.size
        if f'version{matplotlib.__version__},' in committed.info['Software']:  # others may draw text otherwise
            assert np.array_equal(np.asarray(committed), np.asarray(ours)), f'{name}: python docs/tools/evidence.py'


# --- pages of made up grids ---

LABELS = ('none', 'cb', 'gab', 'gab+residual')
TEXT = """# Made up

{overview}

Between.

| grid | cells |
| --- | ---: |
| [first](first.py) | 20 |
| [second](second.py) | 20 |

{results}

| grid | iterations | s / cell | hours |
| --- | ---: | ---: | ---: |
| first | 1,500 | 334 | 3.7 |
| second | 800 | 286 | 2.4 |

{measured costs}

After.
"""


def differ_alike(folder, label, by):
    """Gives the cells of a variant a difference to the baseline."""
    for seed in range(5):
        none = json.loads((cell_folder(folder, 'none', seed) / 'done.json').read_text())
        path = cell_folder(folder, label, seed) / 'done.json'
        path.write_text(json.dumps(none | dict(value=none['value'] + by + 0.01 * seed)))


@pytest.fixture
def evidence(tmp_path):
    """A page of two grids without reports."""
    folder = tmp_path / 'evidence'
    folder.mkdir()
    marks = {name: f'{TOOL["BEGIN"].format(name)}\n{TOOL["END"].format(name)}' for name in TOOL['parts']([])}
    (folder / 'README.md').write_text(TEXT.format(**marks))
    for name in ('first', 'second'):
        settings = f"base = 'base.py'\nplugs = {[*LABELS]}\nseeds = 5\nmetric = 'accuracy/top1'\n"
        (folder / f'{name}.py').write_text(f'# About the {name}.\n{settings}')
    return folder


def write_page(evidence, grids=None):
    """The lines of the page after the command."""
    if grids:
        TOOL['take_over'](grids, evidence)
    TOOL['write'](evidence)
    return (evidence / 'README.md').read_text().splitlines()


def line_like(pattern, lines):
    """The only line that matches."""
    [found] = [line for line in lines if re.fullmatch(pattern, line)]
    return found


def test_grids_that_have_not_been_run_are_said_to_be(evidence):
    lines = write_page(evidence)
    assert '**0 of 40 cells are done.** No grid is complete yet. Figures of unfinished grids are preliminary.' in lines
    assert '| `gab+residual` | not run yet | not run yet |' in lines
    assert lines.count('**Not run yet**: 20 cells are planned.') == 2
    assert '| first | 0 of 20 | 334 |  |  |  | 0.0 |' in lines
    assert not [*evidence.glob('*.png')]


def test_finished_grid_is_told_whichever_way(evidence, tmp_path):
    make_grid(tmp_path / 'grids' / 'first', labels=LABELS)
    lines = write_page(evidence, tmp_path / 'grids')
    assert line_like(r'- `cb`: \*\*better than none\*\*: \+1\.\d\d points, \+0\.\d\d to \+1\.\d\d\.', lines)
    assert line_like(r'- `gab`: \*\*worse than none\*\*: -1\.\d\d points, -1\.\d\d to -\d\.\d\d\.', lines)
    assert line_like(r'- `gab\+residual`: \*\*equal within 0\.3\*\*: \S+ points, -0\S+ to \+0\S+\.', lines)
    assert line_like(r'\| `gab` \| \*\*-1\.\d\d \(-1\.\d\d to -\d\.\d\d\) worse\*\* \| not run yet \|', lines)
    assert '**20 of 40 cells are done.** Complete: first. Figures of unfinished grids are preliminary.' in lines
    assert '- **Better**, 1 of 3 differences: `cb` in first.' in lines
    assert '- **Equal within the margin**, 1 of 3 differences: `gab+residual` in first.' in lines
    # The report's own table without the last column, on the page of its section.
    write_report(tmp_path / 'grids' / 'first')
    written = (tmp_path / 'grids' / 'first' / 'report.md').read_text().splitlines()[:6]
    assert all('|'.join(row.split('|')[:-2]) + '|' in lines for row in written)
    assert '| first | 20 of 20 | 334 | 102 | 100 | 104 | 0.6 |' in lines
    assert 'Together: 0.6 hours of cells.' in lines and '**Preliminary**' not in '\n'.join(lines)
    for name, caption in (
        ('first', 'Differences to none with their intervals'),
        ('first_curves', 'Learning curves, none in grey'),
    ):
        assert (evidence / f'{name}.png').read_bytes().startswith(b'\x89PNG') and f'![{caption}]({name}.png)' in lines
    assert (evidence / 'first.json').read_text() == (tmp_path / 'grids' / 'first' / 'report.json').read_text()


def test_mechanisms_are_taken_over_and_seeds_of_the_page_stay(evidence, tmp_path):
    """A grid that goes on elsewhere has the checkpoints of its new cells alone."""
    claim = next(claim for claim in CLAIMS if claim.text == 'the non-locality falls')

    def measure(seeds, images=128):
        folder = make_grid(tmp_path / 'grids' / 'first', labels=LABELS)
        name, falls = 'non-locality, mean of heads', {seed: np.array([2.0, 1 - seed]) for seed in seeds}
        base = {seed: {name: values + 1} for seed, values in falls.items()}
        row = row_of(claim, 'residual', {seed: {name: values} for seed, values in falls.items()}, base)
        (folder / 'mechanisms').mkdir(exist_ok=True)
        (folder / 'mechanisms/mechanisms.json').write_text(json.dumps(as_json([row], images)))

    measure((0, 1))
    assert '2 | 1.25 | the baseline (2.25) | -1 |  | undecided |' in '\n'.join(write_page(evidence, tmp_path / 'grids'))
    measure((2, 3))
    lines = write_page(evidence, tmp_path / 'grids')
    assert line_like(r'\| residual \| the non-locality falls .* \| 4 \| 0.75 \| .* \| undecided \|', lines)
    at = lines.index('![Values by block, and differences by seed](mechanisms/first.png)')
    assert lines.index('### first') < at < lines.index('### second')
    assert (evidence / 'mechanisms/first.png').read_bytes().startswith(b'\x89PNG')
    measure((4,), images=64)
    with pytest.raises(ValueError, match=r'was measured on 64 images, .*first\.json on 128: measure on 128'):
        write_page(evidence, tmp_path / 'grids')


def test_unfinished_grid_with_failed_cells_is_preliminary(evidence, tmp_path):
    folder = make_grid(tmp_path / 'grids' / 'second', labels=LABELS)
    for label, seed in (('cb', 4), *(('gab', seed) for seed in (2, 3, 4)), *(('gab+residual', s) for s in range(5))):
        (cell_folder(folder, label, seed) / 'done.json').unlink()
    failed = dict(error="FileNotFoundError: [Errno 2] no file '/srv/data/train/7.png'", exit_status=1, attempt=1)
    (cell_folder(folder, 'gab', 2) / 'failed.json').write_text(json.dumps(failed))
    lines = write_page(evidence, tmp_path / 'grids')
    text = '\n'.join(lines)
    assert line_like(r'- `cb` \(4 of 5 seeds\): better than none so far: \+\S+ points, \S+ to \S+\.', lines)
    assert line_like(r'- `gab` \(2 of 5 seeds\): -\S+ points; below 3 seeds there is no interval\.', lines)
    assert '- `gab+residual`: no seed yet.' in lines
    assert line_like(r'\| `cb` \| not run yet \| \+\S+ \(\S+ to \S+\), 4 of 5 seeds \|', lines)
    assert line_like(r'\| `gab` \| not run yet \| -\S+, 2 of 5 seeds \|', lines)
    assert '| `gab+residual` | not run yet | no seed yet |' in lines
    assert '**Preliminary**: 11 of 20 cells done, 1 failed, 8 unfinished.' in text
    assert "- gab, seed 2: FileNotFoundError: [Errno 2] no file '7.png' (exit status 1)" in lines
    assert '/srv' not in text + (evidence / 'second.json').read_text()


def test_interval_without_zero_that_is_not_decided_says_why(evidence, tmp_path):
    """p is 0.04 alone, and 0.12 as the smallest of three."""
    folder = make_grid(tmp_path / 'grids' / 'first', labels=LABELS)
    for label in LABELS[1:]:
        for seed, difference in enumerate((0.1, 0.2, 0.3, 0.4, 0.02) if label == 'gab' else (0.1, -0.1, 0.2, -0.2, 0)):
            path = cell_folder(folder, label, seed) / 'done.json'
            none = json.loads((cell_folder(folder, 'none', seed) / 'done.json').read_text())
            path.write_text(json.dumps(none | dict(value=none['value'] + difference)))
    lines = write_page(evidence, tmp_path / 'grids')
    points = r'\+0\.20 points; \+0\.0\d to \+0\.\d\d is without zero'
    why = r'but p is 0\.12 after the correction for 3 comparisons\.'
    assert line_like(rf'- `gab`: no difference shown: {points}, {why}', lines)
    assert '- **Undecided**, 1 of 3 differences: `gab` in first.' in lines


def test_what_a_correction_over_all_grids_does_not_leave_is_marked_and_pairs_of_all_are_counted(evidence, tmp_path):
    """`gab` is decided in the first grid, barely; all 10 pairs of `cb` are on one side."""
    for name in ('first', 'second'):
        folder = make_grid(tmp_path / 'grids' / name, labels=LABELS)
        differences = dict(gab=(0.1, 0.11, 0.3, 0.12, 0.14) if name == 'first' else (0.1, -0.1, 0.2, -0.2, 0))
        differences |= {'cb': (0.4, 0.01, 0.02, 0.5, 0.01), 'gab+residual': (0.3, -0.3, 0.2, -0.2, 0)}
        for label, values in differences.items():
            for seed, difference in enumerate(values):
                none = json.loads((cell_folder(folder, 'none', seed) / 'done.json').read_text())
                path = cell_folder(folder, label, seed) / 'done.json'
                path.write_text(json.dumps(none | dict(value=none['value'] + difference)))
    lines = write_page(evidence, tmp_path / 'grids')
    assert line_like(r'\| `gab` \| \*\*\+0\.15 \(.*\) better†\*\* \| .*', lines)
    assert line_like(
        r'- \*\*`cb` over all grids: better\*\*\. .* in 10 of 10 pairs of seeds over all 2 grids .*', lines
    )


@pytest.mark.parametrize('start_from', ['', "start_from = '../first'\n"], ids=['of its own', 'from the first'])
def test_pairs_of_a_grid_that_starts_from_another_are_not_enough(evidence, tmp_path, start_from):
    """Ten pairs are above, but five of them only repeat what five say that do not decide alone."""
    path = evidence / 'second.py'
    path.write_text(path.read_text() + start_from)
    for name in ('first', 'second'):
        folder = make_grid(tmp_path / 'grids' / name, labels=LABELS)
        differ_alike(folder, 'cb', 0.4)
        if start_from and name == 'second':
            content = json.loads((folder / 'grid.json').read_text())
            (folder / 'grid.json').write_text(json.dumps(content | dict(start_from='../first')))
    text = '\n'.join(write_page(evidence, tmp_path / 'grids'))
    assert ('`cb` over all grids' in text) == (not start_from)


def test_command_again_changes_nothing_and_keeps_what_is_written_by_hand(evidence, tmp_path):
    make_grid(tmp_path / 'grids' / 'first', seeds=range(5), labels=LABELS)
    first = write_page(evidence, tmp_path / 'grids')
    shutil.rmtree(tmp_path / 'grids')
    files = {path.name: path.read_bytes() for path in evidence.iterdir()}
    assert write_page(evidence) == first and {path.name: path.read_bytes() for path in evidence.iterdir()} == files
    between = re.split(r'<!-- (?:begin|end): .*-->', '\n'.join(first))[::2]
    assert [part.strip() for part in between] == [
        part.strip() for part in re.split(r'\{(?:overview|results|measured costs)\}', TEXT)
    ]


# --- refused ---


def test_report_of_another_grid_is_refused(evidence, tmp_path):
    make_grid(tmp_path / 'grids' / 'first', labels=LABELS, seeds=range(3))
    with pytest.raises(ValueError, match=r'first.json: seeds = \[0, 1, 2\], but first.py has \[0, 1, 2, 3, 4\]'):
        write_page(evidence, tmp_path / 'grids')


def test_folder_with_fewer_finished_cells_is_refused(evidence, tmp_path):
    folder = make_grid(tmp_path / 'grids' / 'first', labels=LABELS)
    write_page(evidence, tmp_path / 'grids')
    shutil.rmtree(cell_folder(folder, 'cb', 1))
    with pytest.raises(ValueError, match=r'first: has 19 finished cells, first.json has 20: remove that file'):
        write_page(evidence, tmp_path / 'grids')
    add_cell(folder, 'cb', 1)
    write_page(evidence, tmp_path / 'grids')


def test_folder_without_grids_is_refused(evidence, tmp_path):
    with pytest.raises(FileNotFoundError, match='has no folder of a grid; expected one of first, second in it'):
        TOOL['take_over'](tmp_path, evidence)


@pytest.mark.parametrize('mark', ['BEGIN', 'END'])
def test_page_without_a_marker_is_refused_and_kept(evidence, mark):
    page = (evidence / 'README.md').read_text().replace(TOOL[mark].format('results'), '')
    (evidence / 'README.md').write_text(page)
    with pytest.raises(ValueError, match=r'expected once .*results'):
        TOOL['write'](evidence)
    assert (evidence / 'README.md').read_text() == page
