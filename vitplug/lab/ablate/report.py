"""The report of a grid: its variants compared by each metric, as tables, pictures and the values of all cells."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from vitplug.files.whole import write_text, write_whole
from vitplug.lab.cells import CELL, GRID, Cell, read_cell
from vitplug.statistics.seeds import LEVEL, MOST_SEEDS, Comparison, Verdict, compare, mean_and_sd, seeds_needed
from vitplug.tables import csv_text, format_table, latex_table, markdown_table

from .plan import greater_is_better

# Metrics of mmdet, which are shares of one and are reported in percent; all others are reported as they are.
SHARES = re.compile(r'(cityscapes|coco|crowd_human|lvis|openimages|pascal_voc)/|(.*/)?(bbox|segm)_mAP')
# Start of a metric's name, without its prefix -> largest difference in points that counts as none.
MARGINS = {'top1': 0.3, 'mIoU': 0.5, 'bbox_mAP': 0.5, 'segm_mAP': 0.5}
NUMERIC = (1, 2, 3, 4, 5, 7)


@dataclass(frozen=True)
class Variant:
    """A variant.

    Attributes:
        name: What tables and pictures call it.
        cells: Its cells by seed.
        curves: The metric by seed and step.
        comparison: Comparison with the baseline, in points; None for the baseline.
    """

    name: str
    cells: Sequence[Cell]
    curves: Mapping[int, Mapping[int, float]]
    comparison: Comparison | None = None

    @property
    def values(self) -> dict[int, float]:
        """The metric of the last validation by seed, of cells that are done and where it is finite."""
        last = {seed: curve[max(curve)] for seed, curve in self.curves.items() if curve}
        done = [cell.seed for cell in self.cells if cell.is_done]
        return {seed: last[seed] for seed in done if math.isfinite(last.get(seed, math.nan))}


@dataclass(frozen=True)
class Summary:
    """An ablation compared by one metric.

    Attributes:
        metric: Its name.
        greater_is_better: False for metrics such as a loss.
        variants: The variants in their order.
        seeds: The planned seeds.
        scale: Points of one unit of the metric, 100 for shares of one.
        margin: Largest difference in points that counts as none; None where none is known.
    """

    metric: str
    greater_is_better: bool
    variants: Sequence[Variant]
    seeds: Sequence[int]
    scale: float
    margin: float | None

    @property
    def compared(self) -> list[Variant]:
        """All variants but the baseline."""
        return [variant for variant in self.variants if variant.comparison]

    @property
    def reference(self) -> Variant:
        """The baseline."""
        return next(variant for variant in self.variants if variant.comparison is None)

    def lack(self, cell: Cell) -> str:
        """Why a cell has no value."""
        return f'no finite {self.metric} is in its records' if cell.is_done else cell.last_line


def summarise(folder: Path, metrics: Sequence[str] = (), rule: str | None = None) -> list[Summary]:
    """Reads the folder of a grid, also while cells are running, and compares its variants by each metric.

    Args:
        folder: The folder.
        metrics: Metrics that the trainings have recorded; those of the grid by default.
        rule: Which of their values are better, see :func:`~.plan.greater_is_better`; None for that of the grid.

    Raises:
        FileNotFoundError: If the folder has no grid.
        ValueError: If no training has recorded a metric, or its name does not say which values are better.
    """
    note = json.loads((folder / GRID).read_text(encoding='utf-8'))
    folders = [folder / 'cells' / name for name in note['cells']]
    cells = [read_cell(path) for path in folders if (path / CELL).is_file()]
    return [_by_metric(metric, note, cells, rule) for metric in metrics or note['metrics']]


def _by_metric(metric: str, note: Mapping[str, Any], cells: Sequence[Cell], rule: str | None) -> Summary:
    is_new, main = metric not in note['metrics'], next(iter(note['metrics']))
    greater = greater_is_better(metric, rule) if is_new or rule else note['metrics'][metric]
    margin = note['margin'] if note['margin'] and metric == main else default_margin(metric)
    scale = 100.0 if SHARES.match(metric) else 1.0
    variants = {}
    for label in note['labels']:
        own = sorted((cell for cell in cells if cell.label == label), key=attrgetter('seed'))
        curves = {cell.seed: cell.curve(metric) for cell in own}
        variants[label] = Variant(note['names'].get(label, label), own, curves)
    if is_new and not any(any(variant.curves.values()) for variant in variants.values()):
        raise ValueError(f'--metric {metric}: no training has recorded it; see vis_data/scalars.json of a cell')
    points = {
        label: {seed: scale * value for seed, value in variant.values.items()} for label, variant in variants.items()
    }
    found = compare(points, note['baseline'], greater, margin=margin)
    compared = [replace(variant, comparison=found.get(label)) for label, variant in variants.items()]
    return Summary(metric, greater, compared, note['seeds'], scale, margin)


def default_margin(metric: str) -> float | None:
    """Largest difference in points that counts as none: 0.3 of top-1, 0.5 of mIoU and mAP, None of other metrics."""
    name = metric.rpartition('/')[2]
    return next((margin for start, margin in MARGINS.items() if name.startswith(start)), None)


# --- tables ---


def write_report(folder: Path, metrics: Sequence[str] = (), rule: str | None = None) -> None:
    """Prints the tables of an ablation and writes the report into its folder, also while cells are running.

    ``report.md``, ``report.tex``, ``report.csv`` (a row for each cell), and for each metric a forest plot and, from two
    validations on, learning curves. Arguments and errors are those of :func:`summarise`.
    """
    from .pictures import curves_picture, forest_picture

    summaries = summarise(folder, metrics, rule)
    for summary in summaries:
        name = re.sub(r'\W+', '_', summary.metric)
        for end, figure in {'': forest_picture(summary), '_curves': curves_picture(summary)}.items():
            if figure:  # labels may be as wide as they are
                save = partial(figure.savefig, format='png', dpi=150, bbox_inches='tight')
                write_whole(folder / f'report_{name}{end}.png', save)
        print('\n'.join([format_table(table(summary), NUMERIC), *remarks(summary), '']))
    write_text(folder / 'report.md', '\n'.join(map(as_markdown, summaries)))
    write_text(folder / 'report.tex', '\n'.join(latex_table(table(summary), NUMERIC) for summary in summaries))
    headings = ('variant', 'seed', 'metric', 'value', 'difference', 'parameters', 'no value')
    write_text(folder / 'report.csv', csv_text(headings, chain.from_iterable(map(values_of, summaries))))
    print(f'report: {folder / "report.md"}')


def table(summary: Summary) -> list[tuple[str, ...]]:
    """Headings and a row for each variant, as text."""
    headings = ('variant', 'seeds', f'{summary.metric} (sd)', 'difference', f'{LEVEL:.0%} interval', 'p (Holm)')
    rows = [(*headings, 'verdict', 'parameters')]
    for variant in summary.variants:
        found, values = variant.comparison, [summary.scale * value for value in variant.values.values()]
        seeds = f'{len(values)} of {len(summary.seeds)}'
        seeds += f' ({len(found.seeds)} paired)' if found and len(found.seeds) < len(values) else ''
        average, sd = mean_and_sd(values)
        mean = '' if average is None else f'{average:.2f}' + ('' if sd is None else f' ({sd:.2f})')
        difference = '' if found is None or found.difference is None else f'{found.difference:+.2f}'
        interval = p = ''
        if found and found.p_holm is not None:
            interval = f'{found.low:+.2f} to {found.high:+.2f}'
            p = '<0.001' if found.p_holm < 0.001 else f'{found.p_holm:.3f}'
        parameters = f'{variant.cells[0].parameters:,}' if variant.cells else ''
        rows.append((variant.name, seeds, mean, difference, interval, p, verdict(found, summary), parameters))
    return rows


def verdict(found: Comparison | None, summary: Summary) -> str:
    """The result of a variant in plain words."""
    if found is None:
        return 'baseline'
    if found.verdict not in (Verdict.BETTER, Verdict.WORSE):
        return f'{found.verdict.value} within {summary.margin:g}' if found.within else found.verdict.value
    words = f'{found.verdict.value} than {summary.reference.name}'
    return f'{words}, by less than {summary.margin:g}' if found.within else words


def remarks(summary: Summary) -> Iterator[str]:
    """Lines below the table: progress, what the figures are, seeds that are needed, cells that differ or are open."""
    cells = [(cell, cell.seed in variant.values) for variant in summary.variants for cell in variant.cells]
    done, planned = sum(cell.is_done for cell, _ in cells), len(summary.variants) * len(summary.seeds)
    yield f'{done} of {planned} cells done'
    if done < planned:
        yield 'preliminary: decide when all cells are done'
    yield (
        "differences in points over paired seeds; intervals are not adjusted, verdicts are: p <= 0.05 after Holm's "
        'correction over the variants of this table'
    )
    spread = {one.name: one.comparison.sd for one in summary.compared if one.comparison.sd is not None}
    if summary.margin is not None and spread:
        found = [(name, seeds_needed(summary.margin, sd)) for name, sd in spread.items()]
        told = ', '.join(f'{name} {count or f"over {MOST_SEEDS:,}"}' for name, count in found)
        yield f'seeds that find a difference of {summary.margin:g} in 80 % of trials, each variant alone: {told}'
    codes = {cell.code: f'{cell.label} seed {cell.seed}' for cell, has_value in cells if has_value}
    if len(codes) > 1:
        yield f'not comparable without care: {len(codes)} states of vitplug, such as of {", ".join(codes.values())}'
    for cell, has_value in cells:
        if not has_value and (why := summary.lack(cell)):
            yield f'no value: {cell}: {why}'


def as_markdown(summary: Summary) -> str:
    """The table and its remarks in Markdown."""
    remarked = (f'- {line}' for line in remarks(summary))
    return '\n'.join([f'## {summary.metric}', '', markdown_table(table(summary), NUMERIC), '', *remarked, ''])


def values_of(summary: Summary) -> Iterator[tuple]:
    """A row of CSV for each cell, with its difference to the baseline of the same seed, as the metric gives it."""
    reference = summary.reference.values
    for variant in summary.variants:
        for cell in variant.cells:
            value = variant.values.get(cell.seed)
            difference = value - reference[cell.seed] if value is not None and cell.seed in reference else None
            why = summary.lack(cell) if value is None else ''
            yield cell.label, cell.seed, summary.metric, value, difference, cell.parameters, why
