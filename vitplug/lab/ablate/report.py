"""The report of a grid: a table for each metric, pictures, and the values of all cells, from what has been trained."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vitplug.files.whole import write_bytes, write_text
from vitplug.statistics.seeds import LEVEL, MOST_SEEDS, mean_and_sd, seeds_needed
from vitplug.tables import csv_text, format_table, latex_table, markdown_table

from .pictures import curves_picture, forest_picture
from .summary import Row, Summary, summarise

NUMERIC = (1, 2, 3, 4, 5, 7)


def write_report(folder: Path, metrics: Sequence[str] = ()) -> None:
    """Prints the tables of a grid and writes the report into its folder, also while cells are running.

    ``report.md``, ``report.tex``, ``report.csv`` (a row for each cell), and for each metric a forest
    plot and, from two validations on, learning curves. Arguments and errors are those of
    :func:`~vitplug.lab.ablate.summary.summarise`.
    """
    summaries = summarise(folder, metrics)
    write_text(folder / 'report.md', '\n'.join(map(as_markdown, summaries)))
    write_text(folder / 'report.tex', '\n'.join(latex_table(table(summary), NUMERIC) for summary in summaries))
    write_text(folder / 'report.csv', as_csv(summaries))
    for summary in summaries:
        name = re.sub(r'\W+', '_', summary.metric)
        write_bytes(folder / f'report_{name}.png', forest_picture(summary))
        if (png := curves_picture(summary)) is not None:
            write_bytes(folder / f'report_{name}_curves.png', png)
        print('\n'.join([format_table(table(summary), NUMERIC), *remarks(summary), '']))
    print(f'report: {folder / "report.md"}')


def table(summary: Summary) -> list[tuple[str, ...]]:
    """Headings and a row for each variant, as text."""
    headings = ('variant', 'seeds', f'{summary.metric} (sd)', 'difference', f'{LEVEL:.0%} interval', 'p (Holm)')
    return [(*headings, 'verdict', 'parameters'), *(_cells(row, summary) for row in summary.rows)]


def _cells(row: Row, summary: Summary) -> tuple[str, ...]:
    found, done = row.comparison, len(row.values)
    paired = f' ({len(found.seeds)} paired)' if found and len(found.seeds) < done else ''
    average, sd = mean_and_sd([summary.scale * value for value in row.values.values()])
    mean = '' if average is None else f'{average:.2f}' + ('' if sd is None else f' ({sd:.2f})')
    difference = '' if found is None or found.difference is None else f'{found.difference:+.2f}'
    interval = p = ''
    if found and found.p_holm is not None:
        interval = f'{found.low:+.2f} to {found.high:+.2f}'
        p = '<0.001' if found.p_holm < 0.001 else f'{found.p_holm:.3f}'
    parameters = f'{row.cells[0].parameters:,}' if row.cells else ''
    seeds = f'{done} of {len(summary.seeds)}{paired}'
    return row.name, seeds, mean, difference, interval, p, verdict(row, summary), parameters


def verdict(row: Row, summary: Summary) -> str:
    """The result of a variant in plain words."""
    found = row.comparison
    if found is None:
        return 'baseline'
    if not found.is_decided:
        return f'{found.verdict.value} within {summary.margin:g}' if found.within else found.verdict.value
    words = f'{found.verdict.value} than {summary.reference.name}'
    return f'{words}, by less than {summary.margin:g}' if found.within else words


def remarks(summary: Summary) -> Iterator[str]:
    """Lines below the table: progress, what the figures are, seeds that are needed, cells that failed or differ."""
    yield summary.progress()
    if any(len(row.values) < len(summary.seeds) for row in summary.rows):
        yield 'preliminary: decide when all cells are done'
    yield (
        "differences in points over paired seeds; intervals are not adjusted, verdicts are: p <= 0.05 after Holm's "
        'correction over the variants of this table'
    )
    spread = {row.name: row.comparison.sd for row in summary.compared if row.comparison.sd is not None}
    if summary.margin is not None and spread:
        found = {name: seeds_needed(summary.margin, sd) for name, sd in spread.items()}
        told = ', '.join(f'{name} {count or f"over {MOST_SEEDS:,}"}' for name, count in found.items())
        yield f'seeds that find a difference of {summary.margin:g} in 80 % of trials, each variant alone: {told}'
    done = [cell for row in summary.rows for cell in row.cells if cell.seed in row.values]
    codes = {cell.code: f'{cell.label} seed {cell.seed}' for cell in done}
    if len(codes) > 1:
        yield f'not comparable without care: {len(codes)} states of vitplug, such as of {", ".join(codes.values())}'
    for row in summary.rows:
        yield from (f'failed: {cell}: {row.errors[cell.seed]}' for cell in row.cells if cell.seed in row.errors)


def as_markdown(summary: Summary) -> str:
    """The table and its remarks in Markdown."""
    remarked = (f'- {line}' for line in remarks(summary))
    return '\n'.join([f'## {summary.metric}', '', markdown_table(table(summary), NUMERIC), '', *remarked, ''])


def as_csv(summaries: Sequence[Summary]) -> str:
    """A row for each cell and metric, with its difference to the baseline of the same seed, as the metric gives it."""
    rows = []
    for summary in summaries:
        reference = summary.reference.values
        for row, cell in [(own, cell) for own in summary.rows for cell in own.cells]:
            value, seed = row.values.get(cell.seed), cell.seed
            difference = value - reference[seed] if value is not None and seed in reference else None
            entries = (cell.label, seed, summary.metric, value, difference, cell.parameters)
            rows.append((*entries, row.errors.get(seed, '')))
    return csv_text(('variant', 'seed', 'metric', 'value', 'difference', 'parameters', 'error'), rows)
