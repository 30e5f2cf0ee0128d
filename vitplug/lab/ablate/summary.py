"""What the cells of a grid amount to: mean, spread and comparison with the baseline, by metric."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from vitplug.runs.metrics import greater_is_better
from vitplug.statistics.seeds import Comparison, compare

from .cells import CELL, Cell, read_cell

GRID = 'grid.json'
# Metrics of mmdet, which are shares of one; all others are reported as they are.
SHARES = ('cityscapes/', 'coco/', 'crowd_human/', 'lvis/', 'openimages/', 'pascal_voc/')
# Start of a metric's name, without its prefix -> margin of equality, in points.
MARGINS = {'top1': 0.3, 'mIoU': 0.5, 'bbox_mAP': 0.5, 'segm_mAP': 0.5}


@dataclass(frozen=True)
class Row:
    """A variant.

    Attributes:
        name: What tables and pictures call it.
        cells: Its cells.
        curves: The metric by seed and step.
        values: The metric of the last validation by seed, of cells that are done and where it is finite.
        errors: By seed, why a cell has no value although it has ended.
        comparison: Comparison with the baseline, in points; None for the baseline.
    """

    name: str
    cells: Sequence[Cell]
    curves: Mapping[int, Mapping[int, float]]
    values: Mapping[int, float]
    errors: Mapping[int, str]
    comparison: Comparison | None


@dataclass(frozen=True)
class Summary:
    """A grid compared by one metric.

    Attributes:
        metric: Its name.
        greater_is_better: False for metrics such as a loss.
        rows: The variants in the grid's order.
        seeds: The planned seeds.
        scale: Points of one unit of the metric, 100 for shares of one.
        margin: Largest difference in points that counts as none; None where none is known.
    """

    metric: str
    greater_is_better: bool
    rows: tuple[Row, ...]
    seeds: Sequence[int]
    scale: float
    margin: float | None

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
        done, failed = (sum(len(getattr(row, kind)) for row in self.rows) for kind in ('values', 'errors'))
        return f'{done} of {len(self.rows) * len(self.seeds)} cells done' + (f', {failed} failed' if failed else '')


def summarise(folder: Path, metrics: Sequence[str] = ()) -> list[Summary]:
    """Reads the folder of a grid, also while cells are running, and compares its variants by each metric.

    Args:
        folder: The folder.
        metrics: Metrics that the trainings have recorded; those of the grid by default.

    Raises:
        FileNotFoundError: If the folder has no grid.
        ValueError: If no training has recorded a metric, or its name does not say which values are better.
    """
    note = json.loads((folder / GRID).read_text(encoding='utf-8'))
    folders = [folder / 'cells' / name for name in note['cells']]
    cells = [read_cell(path) for path in folders if (path / CELL).is_file()]
    return [_by_metric(metric, note, cells) for metric in metrics or note['metrics']]


def _by_metric(metric: str, note: Mapping[str, Any], cells: Sequence[Cell]) -> Summary:
    is_new, main = metric not in note['metrics'], next(iter(note['metrics']))
    greater = greater_is_better(metric) if is_new else note['metrics'][metric]
    curves = {cell: cell.curve(metric) for cell in cells}
    if is_new and not any(curves.values()):
        raise ValueError(f'--metric {metric}: no training has recorded it; see vis_data/scalars.json of a cell')
    scale = points_per_unit(metric)
    margin = note['margin'] if note['margin'] and metric == main else default_margin(metric)
    own = {label: sorted((cell for cell in cells if cell.label == label), key=attrgetter('seed'))
           for label in note['labels']}  # fmt: skip
    values = {
        label: {cell.seed: value for cell in ones if cell.is_done and math.isfinite(value := last_of(curves[cell]))}
        for label, ones in own.items()
    }
    points = {label: {seed: scale * value for seed, value in ones.items()} for label, ones in values.items()}
    comparisons = compare(points, note['baseline'], greater, margin=margin)
    rows = []
    for label, ones in own.items():
        lost = f'it is done, but no finite {metric} is in its records'
        errors = {cell.seed: lost if cell.is_done else cell.error for cell in ones if cell.seed not in values[label]}
        rows.append(
            Row(
                note['names'].get(label, label),
                ones,
                {cell.seed: curves[cell] for cell in ones},
                values[label],
                {seed: error for seed, error in errors.items() if error},
                comparisons.get(label),
            )
        )
    return Summary(metric, greater, tuple(rows), note['seeds'], scale, margin)


def last_of(curve: Mapping[int, float]) -> float:
    """The value of the last validation; NaN without one."""
    return curve[max(curve)] if curve else math.nan


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
    started = {seed: curve for seed, curve in row.curves.items() if curve}
    used = [curve for seed, curve in started.items() if seed in row.values] or [*started.values()]
    if not used:
        return None
    steps = sorted(set.intersection(*map(set, used)))
    values = scale * np.array([[curve[step] for step in steps] for curve in used], float)
    return np.array(steps), values.mean(axis=0), values.std(axis=0, ddof=1) if len(used) > 1 else 0 * values[0]
