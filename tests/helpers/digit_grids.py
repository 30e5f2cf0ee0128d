"""Grids of tiny classifiers on digits, which train in seconds."""

from pathlib import Path

from vitplug.ablation.ablate_command import grid_content
from vitplug.ablation.cells import Cell, plan_cells, write_cell, write_json
from vitplug.ablation.grid import GridFile, make_variants

ROOT = Path(__file__).parents[2]
VIT = str(ROOT / 'configs' / 'digits' / 'vit-mini-p4_1xb32-14e_digits-32x32.py')
LOADERS = {
    f'{split}_dataloader.{name}': value
    for split in ('train', 'val')
    for name, value in dict(num_workers=0, persistent_workers=False).items()
}
TINY = {
    'train_dataloader.batch_size': 10,
    'model.backbone.arch.num_layers': 2,
    'model.backbone.arch.embed_dims': 16,
    'model.neck.in_channels': 16 * 8 * 8,
    'model.neck.out_channels': 16,
    'model.head.in_channels': 16,
    'model.backbone.drop_path_rate': 0.1,
    **LOADERS,
}


def epochs(number, interval=1):
    return {'train_cfg.max_epochs': number, 'train_cfg.val_interval': interval}


def write_grid(out: Path, **settings) -> list[Cell]:
    """The folder of a grid, without the checks of the command and without trainings."""
    grid = GridFile(VIT, metric='accuracy/top1', greater_is_better=True, **settings)
    variants = make_variants(grid)
    cells = plan_cells(variants, grid.seeds, out)
    for cell in cells:
        cell.folder.mkdir(parents=True)
        write_cell(cell, '')
    write_json(out / 'grid.json', grid_content(grid, variants, '') | dict(baseline=variants[0].label))
    return cells
