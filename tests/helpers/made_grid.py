"""Folders of grids as the command leaves them, with made up figures."""

import json
from pathlib import Path

import numpy as np

LABELS = ('none', 'cb', 'gab', 'gab+residual', 'residual(alpha=0.25)')
EFFECTS = {'none': 0.0, 'cb': 1.0, 'gab': -1.2, 'gab+residual': 0.05, 'residual(alpha=0.25)': 0.1}
METRIC = 'accuracy/top1'


def make_grid(folder: Path, seeds=range(5), labels=LABELS, metric=METRIC, scale=1.0, **facts) -> Path:
    """A grid whose cells are all done; values are 88 points and the label's effect, plus noise of seed and cell."""
    folder.mkdir(parents=True, exist_ok=True)
    grid = dict(
        base='configs/fashion/base.py',
        axes={},
        plugs=list(labels),
        seeds=list(seeds),
        metric=metric,
        greater_is_better=True,
        labels=list(labels),
        baseline=labels[0],
        command='python tools/ablate.py base.py',
        versions={'torch': '2.0'},
    )
    (folder / 'grid.json').write_text(json.dumps(grid | facts))
    for label in labels:
        for seed in seeds:
            add_cell(folder, label, seed, metric, scale)
    return folder


def value_of(label: str, seed: int) -> float:
    noise = np.random.default_rng([seed, *label.encode()]).normal(0, 0.1)
    return 88 + 0.7 * seed + EFFECTS.get(label, 0.0) + float(noise)


def add_cell(folder: Path, label: str, seed: int, metric: str = METRIC, scale: float = 1.0) -> Path:
    """A cell that is done, with a validation in each of 10 epochs."""
    here = cell_folder(folder, label, seed)
    here.mkdir(parents=True, exist_ok=True)
    cell = dict(label=label, axes={}, plugs=label, seed=seed, hash='0123456789')
    (here / 'cell.json').write_text(json.dumps(cell | dict(config_diff='' if label == 'none' else f'plugs: <{label}>')))
    final = scale * value_of(label, seed)
    rows = [
        dict(step=step, by='epoch', metrics={metric: final - scale * 20 / step**2 + scale * 0.2})
        for step in range(1, 11)
    ]
    rows[-1]['metrics'][metric] = final
    (here / 'validations.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    done = dict(metric=metric, value=final, best=final, seconds=100.0 + seed, memory_mib=200 + seed, parameters=311_434)
    (here / 'done.json').write_text(json.dumps(done | dict(iterations=2500, status='done')))
    return here


def cell_folder(folder: Path, label: str, seed: int) -> Path:
    return folder / 'cells' / f'{label}_seed{seed}_0123456789'
