"""The grids of docs/evidence are those that its page shows, and can be run."""

import re
from pathlib import Path

import pytest

from vitplug.ablation.grid import make_variants, read_grid_file
from vitplug.ablation.metrics import choose_metric

EVIDENCE = Path(__file__).resolve().parents[2] / 'docs' / 'evidence'
GRIDS = sorted(EVIDENCE.glob('*.py'))


@pytest.mark.parametrize('path', GRIDS, ids=lambda path: path.stem)
def test_grid_is_the_one_of_the_page(path):
    grid = read_grid_file(path)
    variants = make_variants(grid)
    assert variants[0].label == 'none' and choose_metric(variants[0].cfg, grid.metric) == grid.metric
    text = (EVIDENCE / 'README.md').read_text()
    [row] = re.findall(rf'^\| \[{path.stem}\]\({path.name}\) \|.*$', text, re.MULTILINE)
    seeds, cells = (int(number) for number in row.split('|')[-4:-2])
    assert (seeds, cells) == (len(grid.seeds), len(grid.seeds) * len(variants))
    [costs] = re.findall(rf'^\| {path.stem} \| ([\d,]+) \|', text, re.MULTILINE)
    assert int(costs.replace(',', '')) == variants[0].cfg.train_cfg.max_iters
    command = f'python tools/ablate.py docs/evidence/{path.name} --out work_dirs/evidence/{path.stem}'
    assert command in text and f'# {command}\n' in path.read_text()


def test_checkpoint_is_that_of_the_training_before():
    """The plain model that plugs are added to is trained by the command above the grid's, until the file named."""
    commands = re.findall(r'^python (.*)$', (EVIDENCE / 'README.md').read_text(), re.MULTILINE)
    index = next(i for i, command in enumerate(commands) if 'evidence/stock.py' in command)
    trained = Path(commands[index - 1].removeprefix('tools/train.py '))
    loaded = Path(make_variants(read_grid_file(EVIDENCE / 'stock.py'))[0].cfg.load_from)
    assert loaded.parent == Path('work_dirs', trained.stem)
    assert re.search(r'-(\d+)i_', trained.stem)[1] == loaded.stem.removeprefix('iter_')
