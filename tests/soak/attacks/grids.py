"""Folders of ablations with damaged records, data under another's name, and files of the user."""

import os
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from .sandbox import GRID_LINE
from .trials import REGISTRY, Accept, Command, Scene, Trial, become, one

REPORT = 'ablate.py grid --report'
# What every call writes anew.
WRITTEN = ('sandbox/grid/report*', 'sandbox/grid/grid.json', 'sandbox/grid/cells/*/output.log', '*/.*.lock')
RECORDS = (
    'done.json',
    'cell.json',
    'validations.jsonl',
    'config.py',
    'last_checkpoint',
    'failed.json',
    '../../grid.json',
)
CONTENTS = (
    '', '{', '[]', 'null', '{}', '"a"', '{"value": 1e999}', '{"value": ' + '9' * 400 + '}', '{"error": null}', '\0',
    '[' * 10**5,
    '{"label": "\x1b[31m", "seed": -1, "hash": 3}', '{"label": [], "seed": {}, "hash": {}, "data": []}',
)  # fmt: skip


def attack(function):
    return REGISTRY.add('grids', function)


def cell_of(folder: Path) -> Path:
    [cell] = folder.glob('grid/cells/*')
    return cell


def again(
    scene: Scene, damage: str, names: tuple[str, ...], *may_change: str, line: str = GRID_LINE, **settings
) -> Trial:
    """The report, then the same grid once more."""
    steps = [[Command(command)] for command in (REPORT, line)]
    return Trial(
        steps, damage, (*names, 'cell'), settings.pop('accept', Accept.ANY), 'grid', may_change=(*WRITTEN, *may_change)
    )


@attack
def record_with_other_content(scene: Scene) -> Trial:
    cell = cell_of(scene.make('grid'))
    name, text = scene.draw.choice(RECORDS), scene.draw.choice(CONTENTS)
    path = Path(os.path.normpath(cell / name))
    path.write_text(text)
    # A damaged cell may go on or fail, but keeps its checkpoint.
    records = [f'sandbox/grid/cells/*/{one}' for one in ('*.json', '*.jsonl', 'config.py', 'last_checkpoint', '20*')]
    return again(scene, f'{name} holds {text[:30]!r}', (path.name, 'grid'), *records)


@attack
def record_that_is_no_file(scene: Scene) -> Trial:
    cell = cell_of(scene.make('grid'))
    path = Path(os.path.normpath(cell / scene.draw.choice((*RECORDS, 'output.log'))))
    kind = scene.draw.choice(['FIFO', 'folder', '/dev/zero', str(scene.precious / 'notes.txt'), 'link to nothing'])
    become(path, kind)
    records = [f'sandbox/grid/cells/*/{one}' for one in ('*.json', '*.jsonl', 'config.py', 'last_checkpoint', '20*')]
    return again(scene, f'{path.name} is a {kind}', (path.name, 'grid'), *records)


@attack
def files_of_the_user(scene: Scene) -> Trial:
    """Checkpoints that somebody put beside those of a finished cell; then nothing is to be kept."""
    folder = scene.make('grid')
    cell = cell_of(folder)
    kind = scene.draw.choice(['copy', 'link', 'link to the cell'])
    if kind == 'copy':
        shutil.copy(
            folder / 'good_classify.pth', cell / scene.draw.choice(['mine.pth', 'epoch_7.pth', 'best_of_all.pth'])
        )
    elif kind == 'link':
        (cell / 'epoch_7.pth').symlink_to(scene.precious / 'epoch_1.pth')
    else:
        moved = scene.precious / 'cell'
        cell.rename(moved)
        cell.symlink_to(moved)
    own = ('sandbox/grid/cells/*/epoch_2.pth', 'sandbox/grid/cells/*/last_checkpoint', 'precious/cell/output.log')
    return again(scene, f'a {kind} of the user', ('grid',), *own, line=f'{GRID_LINE} --keep none')


@attack
def other_data_of_the_same_name(scene: Scene) -> Trial:
    """A fold of data under the name of another: no result of the first may stand for it."""
    folder = scene.make('grid')
    shutil.copytree(folder / 'data', folder / 'fold1/data')
    kind = scene.draw.choice(['train', 'val'])
    path = folder / f'fold1/data/{kind}/cat/more.png'
    Image.fromarray(np.zeros((16, 24, 3), np.uint8)).save(path)
    options = ' '.join(f'{split}_dataloader.dataset.data_root=fold1/data' for split in ('train', 'val', 'test'))
    line = f'{GRID_LINE} --cfg-options {options}'
    return again(scene, f'other {kind} data', ('fold1',), line=line, accept=Accept.REFUSED)


@attack
def moved(scene: Scene) -> Trial:
    """The folder of a grid, or its data, lies elsewhere: its cell is found."""
    folder = scene.make('grid')
    (folder / 'there').mkdir()
    (folder / 'grid').rename(folder / 'there/grid')
    own = ('sandbox/there/grid/*',)
    return Trial(
        one(GRID_LINE.replace('--out grid', '--out there/grid')), 'moved', ('grid',), Accept.ANY, 'grid', may_change=own
    )


@attack
def modules_in_the_current_folder(scene: Scene) -> Trial:
    folder = scene.make()
    for name in scene.draw.sample(['json', 'torch', 'argparse', 'runpy', 'mmengine', 'ast'], 3):
        (folder / f'{name}.py').write_text("import os\nos.system('touch ../harm')\n")
    return Trial(one(GRID_LINE), 'modules of common names', ('grid',), Accept.ANY)
