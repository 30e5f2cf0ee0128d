"""What the cells of a grid amount to: mean, spread, comparison with the baseline and costs of every variant."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.statistics.seeds import Comparison, compare, mean_and_sd

from .records import Cell, Grid, State, read_cells, read_grid

# Metrics of mmdet, which are shares of one; all others are reported as they are.
SHARES = ('cityscapes/', 'coco/', 'crowd_human/', 'lvis/', 'openimages/', 'pascal_voc/')

# Start of a metric's name, without its prefix -> margin of equality.
MARGINS = {'top1': 0.3, 'mIoU': 0.5, 'bbox_mAP': 0.5, 'segm_mAP': 0.5}


@dataclass(frozen=True)
class Row:
    """A variant.

    Attributes:
        label: Its label.
        cells: Its cells, one for each seed.
        mean: Mean of the metric over finished seeds, in points.
        sd: Sample standard deviation, in points.
        comparison: Comparison with the baseline, in points; None for the baseline.
    """

    label: str
    cells: tuple[Cell, ...]
    mean: float | None
    sd: float | None
    comparison: Comparison | None

    def of(self, state: State) -> list[Cell]:
        """The cells in a state."""
        return [cell for cell in self.cells if cell.state is state]

    @property
    def by_seed(self) -> dict[int, float]:
        """The values of the finished cells."""
        return {cell.seed: cell.value for cell in self.of(State.DONE)}

    @property
    def seconds(self) -> float | None:
        """Mean duration of the finished cells."""
        return mean_and_sd(self._known('seconds'))[0]

    @property
    def memory_mib(self) -> float | None:
        """Largest peak memory of the finished cells."""
        return max(self._known('memory_mib'), default=None)

    @property
    def parameters(self) -> int | None:
        """Parameters of the model."""
        return max(self._known('parameters'), default=None)

    @property
    def config_diff(self) -> str:
        """Difference of the config to the baseline's."""
        return next((cell.config_diff for cell in self.cells if cell.config_diff), '')

    def _known(self, name: str) -> list:
        return [getattr(cell, name) for cell in self.of(State.DONE) if getattr(cell, name) is not None]


@dataclass(frozen=True)
class Summary:
    """A grid and its variants.

    Attributes:
        grid: The grid.
        rows: The variants in the grid's order.
        scale: Points of one unit of the metric, 100 for shares of one.
        margin: Largest difference in points that counts as none; None where none is known.
    """

    grid: Grid
    rows: tuple[Row, ...]
    scale: float
    margin: float | None = None

    @property
    def cells(self) -> list[Cell]:
        """All cells."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def compared(self) -> list[Row]:
        """All variants but the baseline."""
        return [row for row in self.rows if row.comparison]

    @property
    def baseline(self) -> Row:
        """The baseline."""
        return next(row for row in self.rows if row.comparison is None)

    @property
    def is_complete(self) -> bool:
        """True if every cell is done."""
        return all(cell.state is State.DONE for cell in self.cells)

    def count(self, state: State) -> int:
        """Number of cells in a state."""
        return sum(cell.state is state for cell in self.cells)

    def progress(self) -> str:
        """Such as ``'35 of 40 cells done, 2 failed, 3 missing'``."""
        counts = {state: self.count(state) for state in State if state is not State.DONE}
        rest = [f'{count} {state.value}' for state, count in counts.items() if count]
        return ', '.join([f'{self.count(State.DONE)} of {len(self.cells)} cells done', *rest])


def summarise(folder: str | Path) -> Summary:
    """Reads a grid's folder and compares its variants.

    Raises:
        FileNotFoundError, ValueError: As :func:`.records.read_grid` and :func:`.records.read_cells`.
    """
    grid = read_grid(Path(folder))
    return summary_of(grid, read_cells(Path(folder), grid))


def summary_of(grid: Grid, cells: Sequence[Cell]) -> Summary:
    """Compares the variants of a grid.

    Args:
        grid: The grid.
        cells: All of its cells, finished or not.
    """
    scale = points_per_unit(grid.metric)
    by_label = {label: tuple(cell for cell in cells if cell.label == label) for label in grid.labels}
    values = {
        label: {cell.seed: scale * cell.value for cell in own if cell.state is State.DONE}
        for label, own in by_label.items()
    }
    margin = grid.margin or default_margin(grid.metric)
    comparisons = compare(values, grid.baseline, grid.greater_is_better, margin=margin)
    rows = tuple(
        Row(label, own, *mean_and_sd([*values[label].values()]), comparisons.get(label))
        for label, own in by_label.items()
    )
    return Summary(grid, rows, scale, margin)


def points_per_unit(metric: str) -> float:
    """100 for metrics that are shares of one, 1 for all others."""
    is_share = metric.startswith(SHARES) or metric.rpartition('/')[2].startswith(('bbox_mAP', 'segm_mAP'))
    return 100.0 if is_share else 1.0


def default_margin(metric: str) -> float | None:
    """Largest difference in points that counts as none: 0.3 of top-1, 0.5 of mIoU and mAP, None of other metrics."""
    name = metric.rpartition('/')[2]
    return next((margin for start, margin in MARGINS.items() if name.startswith(start)), None)


def verdict(row: Row, summary: Summary) -> str:
    """The result of a variant in plain words."""
    found = row.comparison
    if found is None:
        return 'baseline'
    if not found.is_decided:
        return f'{found.verdict.value} within {summary.margin:g}' if found.within else found.verdict.value
    words = f'{found.verdict.value} than {summary.grid.baseline}'
    return f'{words}, by less than {summary.margin:g}' if found.within else words


@dataclass(frozen=True)
class Curve:
    """A metric over the training, over seeds.

    Attributes:
        steps: Epochs or iterations, shape (S,).
        mean: Mean over seeds in points, shape (S,).
        sd: Sample standard deviation, shape (S,); 0 for one seed.
        seeds: Number of seeds.
    """

    steps: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    seeds: int


def curve(cells: Sequence[Cell], scale: float) -> Curve | None:
    """The learning curve of a variant, at the steps that all seeds have.

    A cell that is still running would cut it short, so it counts only while none is done.

    Returns:
        The curve; None if there is no validation yet.
    """
    with_curve = [cell for cell in cells if cell.curve]
    used = [cell for cell in with_curve if cell.state is State.DONE] or with_curve
    if not used:
        return None
    steps = sorted(set.intersection(*(set(cell.curve) for cell in used)))
    values = scale * np.array([[cell.curve[step] for step in steps] for cell in used], float)
    sd = values.std(axis=0, ddof=1) if len(used) > 1 else np.zeros(len(steps))
    return Curve(np.array(steps), values.mean(axis=0), sd, len(used))
