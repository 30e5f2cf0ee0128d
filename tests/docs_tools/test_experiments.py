"""The list of the papers' tables and figures: what is read from it, what is refused, and the list itself."""

import shlex
from pathlib import Path

import pytest
from experiments import BEGIN, END, read_experiments
from paper_tables import main

from vitplug.lab.study.command import PAPERS, _parser

ROOT = Path(__file__).resolve().parents[2]
LIST = """paper:
  parts:
    - {part: Table 1, what: sizes, configs: ['small*', large]}
    - {part: Figure 2, what: curves, configs: [small], missing: the picture}
    - {part: Figure 3, what: maps, command: study CONFIG --measures maps}
    - {part: Table 4, what: text, missing: a language model}
  beyond:
    - {configs: [other], reason: of the code}
"""
TABLE = """| Place in the paper | Experiment | Configs (number), command | Missing |
| --- | --- | --- | --- |
| Table 1 | sizes | `small*`, `large` (3) |  |
| Figure 2 | curves | `small` (1) | the picture |
| Figure 3 | maps | `vitplug study CONFIG --measures maps` |  |
| Table 4 | text |  | a language model |"""
COUNTS = '| [paper](../configs/paper/README.md) | 4 | 4 | 2 | 1 | 1 |\n| all | 4 | 4 | 2 | 1 | 1 |'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ('configs/paper', 'docs', 'tools/analysis_tools'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'configs/experiments.yml').write_text(LIST)
    for name in ('small', 'small-plug', 'large', 'other'):
        (tmp_path / f'configs/paper/{name}.py').touch()
    for name in ('configs/paper/README.md', 'docs/recipes.md'):
        (tmp_path / name).write_text(f'# Title\n\n{BEGIN}\nold\n{END}\n\nMore.\n')
    (tmp_path / 'model-index.yml').write_text('Import: []\n')
    return tmp_path


def test_tables_are_written(root):
    main([], root)
    assert (root / 'configs/paper/README.md').read_text() == f'# Title\n\n{BEGIN}\n\n{TABLE}\n\n{END}\n\nMore.\n'
    assert COUNTS in (root / 'docs/recipes.md').read_text()


def test_coverage_names_every_part_and_writes_nothing(root, capsys):
    main(['--coverage'], root)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ['Figure', '2', 'curves', 'partial', 'the', 'picture'] in lines
    assert ['all', '4', '4', '2', '1', '1'] in lines
    assert 'old' in (root / 'docs/recipes.md').read_text()


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        ('configs: [other]', 'configs: [othr]', r"no config has the name \['othr'\]"),
        (', large]', ']', r"configs in no part: \['large'\]; add them to `parts`"),
        ('what: maps, ', '', "the key 'what' is missing"),
        ('study CONFIG', 'studdy CONFIG', r"Figure 3: 'studdy CONFIG .* is no command of vitplug: expected one of"),
    ],
)
def test_wrong_lists_are_refused(root, old, new, message):
    assert LIST.count(old) == 1
    (root / 'configs/experiments.yml').write_text(LIST.replace(old, new))
    with pytest.raises(ValueError, match=rf'^configs/experiments\.yml: paper: {message}'):
        read_experiments(root)


def test_list_has_all_papers_and_commands_that_exist():
    papers = {paper.name: paper for paper in read_experiments(ROOT)}
    folders = {path.parent.name for path in (ROOT / 'configs').glob('*/metafile.yml')}
    assert {*papers} == folders - {'camvid', 'cifar10', 'digits', 'fashion', 'nuclei'}
    commands = [part.command for paper in papers.values() for part in paper.parts if part.command]
    of_study = [shlex.split(command)[1:] for command in commands if command.startswith('study ')]
    named = {_parser().parse_args(arguments).paper for arguments in of_study}
    assert named == set(PAPERS)
