"""Grids whose cells start from those of another grid."""

import json
from pathlib import Path

import pytest
import torch
from digit_grids import TINY, VIT, epochs
from made_grid import make_grid

from vitplug.ablation.ablate_command import main, starts_of
from vitplug.ablation.cells import plan_cells
from vitplug.ablation.grid import GridFile, make_variants
from vitplug.ablation.starts import check_starts, find_starts
from vitplug.analysis.costs import build_model
from vitplug.checkpoints.files import read_checkpoint

LABELS = ('none', 'gab')
UPERNET = str(Path(VIT).parent / 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py')


def keep_checkpoint(folder, label, seed, weights=None):
    """Gives a cell the checkpoint of its end."""
    [cell] = folder.glob(f'cells/{label}_seed{seed}_*')
    torch.save(dict(state_dict=weights or {'backbone.x': torch.zeros(1) + seed}), cell / 'epoch_1.pth')
    (cell / 'last_checkpoint').write_text(str(cell / 'epoch_1.pth'))
    return cell / 'epoch_1.pth'


@pytest.fixture
def trained(tmp_path):
    """A finished grid of two variants and seeds."""
    folder = make_grid(tmp_path / 'trained', seeds=(0, 1), labels=LABELS)
    paths = {(label, seed): keep_checkpoint(folder, label, seed) for label in LABELS for seed in (0, 1)}
    return folder, paths


@pytest.mark.parametrize('lost', ['done.json', 'epoch_1.pth'])
def test_each_cell_starts_from_that_of_its_label_and_seed_and_others_wait(trained, tmp_path, lost):
    _, paths = trained
    (paths['gab', 1].parent / lost).unlink()
    grid = GridFile(VIT, plugs=LABELS, seeds=[0, 1], start_from='../trained')
    variants = make_variants(grid)
    cells = plan_cells(variants, grid.seeds, tmp_path / 'out', starts_of(grid, variants, tmp_path / 'out'))
    assert {(cell.variant.label, cell.seed): Path(cell.cfg.load_from) for cell in cells} == {
        key: path for key, path in paths.items() if key != ('gab', 1)
    }
    # What they start from is known by its content: files of one name are told apart.
    marks = [cell.data['load_from'][1] for cell in cells]
    assert marks[0] == marks[1] != marks[2]
    assert {cell.data['load_from'][0] for cell in cells} == {cell.cfg.load_from for cell in cells}


@pytest.mark.parametrize(
    ('change', 'kind', 'message'),
    [
        (lambda folder: (folder / 'grid.json').unlink(), FileNotFoundError, r'start_from: .*train that grid'),
        *(
            (
                lambda folder, name=name: [path.unlink() for path in folder.rglob(name)],
                ValueError,
                r'no cell of .*trained is done and has its checkpoint: set keep = .last. in its grid file',
            )
            for name in ('done.json', 'epoch_1.pth')
        ),
    ],
)
def test_grids_to_start_from_that_are_not_ready(trained, tmp_path, change, kind, message):
    change(trained[0])
    grid = GridFile(VIT, plugs=LABELS, seeds=[0, 1], start_from='../trained')
    with pytest.raises(kind, match=message):
        starts_of(grid, make_variants(grid), tmp_path / 'out')


def test_variants_and_seeds_that_the_other_grid_lacks(trained):
    folder, _ = trained
    with pytest.raises(ValueError, match=r"has no variant 'cb': choose from none, gab"):
        find_starts(folder, ['none', 'cb'], [0])
    with pytest.raises(ValueError, match=r'has no seed 2: choose from 0, 1'):
        find_starts(folder, ['none'], [0, 2])


def test_backbones_are_the_same_but_for_the_size_of_images(tmp_path):
    """A ViT of 128 x 128 with another grid of tokens takes the checkpoint; one with other plugs or patches does not."""
    small = {'model.backbone.img_size': 64}
    cb, plain, other = (
        make_variants(GridFile(UPERNET, plugs=[plugs], options=options))[0]
        for plugs, options in (('refiner', {}), ('none', {}), ('refiner', {'model.backbone.patch_size': 4}))
    )
    [source] = make_variants(GridFile(UPERNET, plugs=['refiner'], options=small))
    weights = {key: torch.zeros(value.shape) for key, value in build_model(source.cfg).state_dict().items()}
    path = tmp_path / 'epoch_1.pth'
    torch.save(dict(state_dict=weights), path)
    check_starts([cb], {('refiner', 0): path})
    with pytest.raises(ValueError, match=r'is of another backbone .*no place for backbone\.layers\.0\.\S*refiner'):
        check_starts([plain], {('none', 0): path})
    torch.save(dict(state_dict={'head.weight': torch.zeros(1)}), path)
    with pytest.raises(ValueError, match='no place for any of its tensors'):
        check_starts([other], {('refiner', 0): path})


@pytest.mark.slow
@pytest.mark.usefixtures('digits_variable')
def test_command_trains_a_grid_from_another_one(tmp_path, capsys):
    """The weights of both variants begin as those of the first grid ended, the plug's included."""
    text = f'base = {VIT!r}\nplugs = ["none", "refiner"]\nseeds = [3]\noptions = {TINY | epochs(1)!r}\nkeep = "last"\n'
    (tmp_path / 'first.py').write_text(text)
    # A rate of zero leaves the weights of the start.
    second = f'{text}options["optim_wrapper.optimizer.lr"] = 0.0\nstart_from = "../first"\n'
    (tmp_path / 'second.py').write_text(second)
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path / 'second.py'), '--out', str(tmp_path / 'second')])
    assert end.value.code == 2 and 'start_from: ' in capsys.readouterr().err
    for name in ('first', 'second'):
        with pytest.raises(SystemExit) as end:
            main([str(tmp_path / f'{name}.py'), '--out', str(tmp_path / name), '--jobs', '1'])
        assert end.value.code == 0
    assert json.loads((tmp_path / 'second/grid.json').read_text())['start_from'] == '../first'
    for label in ('none', 'refiner'):
        [first], [again] = (
            [
                read_checkpoint(path)['state_dict']
                for path in (tmp_path / name).glob(f'cells/{label}_seed3_*/epoch_1.pth')
            ]
            for name in ('first', 'second')
        )
        assert first.keys() == again.keys() and any('refiner' in key for key in first) == (label == 'refiner')
        assert all(torch.equal(first[key], again[key]) for key in first)
