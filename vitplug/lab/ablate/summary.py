"""What the cells of a grid amount to: mean, spread and comparison with the baseline, by metric."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitplug.runs.metrics import greater_is_better
from vitplug.statistics.seeds import Comparison, compare, mean_and_sd

from .cells import CELL, last_finite, read_cell

GRID = 'grid.json'
# Metrics of mmdet, which are shares of one; all others are reported as they are.
SHARES = ('cityscapes/', 'coco/', 'crowd_human/', 'lvis/', 'openimages/', 'pascal_voc/')
# Start of a metric's name, without its prefix -> margin of equality, in points.
MARGINS = {'top1': 0.3, 'mIoU': 0.5, 'bbox_mAP': 0.5, 'segm_mAP': 0.5}


@dataclass(frozen=True)
class Result:
    """A cell in the light of one metric.

    Attributes:
        label, seed: The variant and the seed.
        value: The metric of the last validation; None unless the training is done and the metric is finite.
        curve: The metric by step.
        error: Why the cell has no value although it has ended.
        parameters: Number of parameters of its model.
        code: Hash of the code of vitplug that trained it.
    """

    label: str
    seed: int
    value: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    error: str = ''
    parameters: int | None = None
    code: str = ''


@dataclass(frozen=True)
class Row:
    """A variant.

    Attributes:
        name: What tables and pictures call it.
        results: Its cells, one for each planned seed.
        mean, sd: Mean and sample standard deviation over finished seeds, in points.
        comparison: Comparison with the baseline, in points; None for the baseline.
    """

    name: str
    results: tuple[Result, ...]
    mean: float | None
    sd: float | None
    comparison: Comparison | None

    @property
    def by_seed(self) -> dict[int, float]:
        """The values of the finished cells, in the metric's unit."""
        return {result.seed: result.value for result in self.results if result.value is not None}

    @property
    def parameters(self) -> int | None:
        return max((one.parameters for one in self.results if one.parameters is not None), default=None)


@dataclass(frozen=True)
class Summary:
    """A grid compared by one metric.

    Attributes:
        metric: Its name.
        greater_is_better: False for metrics such as a loss.
        rows: The variants in the grid's order.
        scale: Points of one unit of the metric, 100 for shares of one.
        margin: Largest difference in points that counts as none; None where none is known.
    """

    metric: str
    greater_is_better: bool
    rows: tuple[Row, ...]
    scale: float
    margin: float | None

    @property
    def results(self) -> list[Result]:
        return [result for row in self.rows for result in row.results]

    @property
    def compared(self) -> list[Row]:
        """All variants but the baseline."""
        return [row for row in self.rows if row.comparison]

    @property
    def reference(self) -> Row:
        """The baseline."""
        return next(row for row in self.rows if row.comparison is None)

    def progress(self) -> str:
        """Such as ``'35 of 40 cells done, 2 failed'``."""
        done = sum(result.value is not None for result in self.results)
        failed = sum(bool(result.error) for result in self.results)
        return f'{done} of {len(self.results)} cells done' + (f', {failed} failed' if failed else '')


def read_note(folder: Path) -> dict[str, Any]:
    """What the ``grid.json`` of a folder says.

    Raises:
        FileNotFoundError: If the folder has none.
    """
    path = folder / GRID
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {GRID}: name a config, a grid file or the folder of an ablation')
    return json.loads(path.read_text(encoding='utf-8'))


def summarise(folder: Path, metric: str | None = None) -> Summary:
    """Reads the folder of a grid, also while cells are running, and compares its variants.

    Args:
        folder: The folder.
        metric: The metric; None for the first one of the grid.

    Raises:
        FileNotFoundError: If the folder has no grid.
        ValueError: If no training has recorded the metric, or its name does not say which values are better.
    """
    note = read_note(folder)
    main = next(iter(note['metrics']))
    metric = metric or main
    is_new = metric not in note['metrics']
    greater = greater_is_better(metric) if is_new else note['metrics'][metric]
    found = {}
    for name in note['cells']:
        if (folder / 'cells' / name / CELL).is_file():
            cell = read_cell(folder / 'cells' / name)
            curve = cell.curve(metric)
            value = last_finite(curve) if cell.is_done else None
            missing = f'it is done, but no finite {metric} is in its records' if cell.is_done and value is None else ''
            found[cell.label, cell.seed] = Result(
                cell.label, cell.seed, value, curve, cell.error or missing, cell.parameters, cell.code
            )
    if is_new and found and not any(one.curve for one in found.values()):
        raise ValueError(f'--metric {metric}: no training in {folder} has recorded it; see its vis_data/scalars.json')
    scale = points_per_unit(metric)
    margin = note['margin'] if note.get('margin') and metric == main else default_margin(metric)
    own = {
        label: tuple(found.get((label, seed), Result(label, seed)) for seed in note['seeds'])
        for label in note['labels']
    }
    values = {
        label: {one.seed: scale * one.value for one in ones if one.value is not None} for label, ones in own.items()
    }
    comparisons = compare(values, note['baseline'], greater, margin=margin)
    names = note.get('names') or {}
    rows = tuple(
        Row(names.get(label, label), ones, *mean_and_sd([*values[label].values()]), comparisons.get(label))
        for label, ones in own.items()
    )
    return Summary(metric, greater, rows, scale, margin)


def points_per_unit(metric: str) -> float:
    """100 for metrics that are shares of one, 1 for all others."""
    is_share = metric.startswith(SHARES) or metric.rpartition('/')[2].startswith(('bbox_mAP', 'segm_mAP'))
    return 100.0 if is_share else 1.0


def default_margin(metric: str) -> float | None:
    """Largest difference in points that counts as none: 0.3 of top-1, 0.5 of mIoU and mAP, None of other metrics."""
    name = metric.rpartition('/')[2]
    return next((margin for start, margin in MARGINS.items() if name.startswith(start)), None)


def mean_curve(row: Row, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Steps, mean and standard deviation over seeds of a metric in points, at the steps that all seeds have.

    A cell that still runs would cut it short, so it counts only while none is done. None without a validation.
    """
    started = [one for one in row.results if one.curve]
    used = [one for one in started if one.value is not None] or started
    if not used:
        return None
    steps = sorted(set.intersection(*(set(one.curve) for one in used)))
    values = scale * np.array([[one.curve[step] for step in steps] for one in used], float)
    return np.array(steps), values.mean(axis=0), values.std(axis=0, ddof=1) if len(used) > 1 else 0 * values[0]
