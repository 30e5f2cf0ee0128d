"""The report of a grid: a table for each metric, pictures, and the values of all cells, from what has been trained."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vitplug.files.whole import write_bytes, write_text
from vitplug.statistics.seeds import LEVEL, MOST_SEEDS, seeds_needed
from vitplug.tables import format_table, latex_table, markdown_table

from .pictures import curves_picture, forest_picture
from .summary import Row, Summary, read_note, summarise

NUMERIC = (1, 2, 3, 4, 5, 7)


def write_report(folder: Path, metrics: Sequence[str] = ()) -> None:
    """Prints the tables of a grid and writes the report into its folder, also while cells are running.

    ``report.md``, ``report.tex``, ``report.csv`` (a row for each cell), and for each metric a forest
    plot and, from two validations on, learning curves.

    Args:
        folder: Folder of the grid.
        metrics: Metrics that the trainings have recorded; those of the grid by default.

    Raises:
        FileNotFoundError: If the folder is none of a grid.
        ValueError: If no training has recorded a metric.
    """
    summaries = [summarise(folder, metric) for metric in metrics or read_note(folder)['metrics']]
    texts = {
        'report.md': '\n'.join(map(as_markdown, summaries)),
        'report.tex': '\n'.join(latex_table(table(summary), NUMERIC) for summary in summaries),
        'report.csv': as_csv(summaries),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
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
    found, done = row.comparison, len(row.by_seed)
    paired = f' ({len(found.seeds)} paired)' if found and len(found.seeds) < done else ''
    mean = '' if row.mean is None else f'{row.mean:.2f}' + ('' if row.sd is None else f' ({row.sd:.2f})')
    difference = '' if found is None or found.difference is None else f'{found.difference:+.2f}'
    interval = p = ''
    if found and found.p_holm is not None:
        interval = f'{found.low:+.2f} to {found.high:+.2f}'
        p = '<0.001' if found.p_holm < 0.001 else f'{found.p_holm:.3f}'
    parameters = '' if row.parameters is None else f'{row.parameters:,}'
    seeds = f'{done} of {len(row.results)}{paired}'
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
    if any(result.value is None for result in summary.results):
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
    codes = {one.code: f'{one.label} seed {one.seed}' for one in summary.results if one.code and one.value is not None}
    if len(codes) > 1:
        yield f'not comparable without care: {len(codes)} states of vitplug, such as of {", ".join(codes.values())}'
    yield from (f'failed: {one.label}, seed {one.seed}: {one.error}' for one in summary.results if one.error)


def as_markdown(summary: Summary) -> str:
    """The table and its remarks in Markdown."""
    rows = [tuple(_plain(text).replace('|', r'\|') for text in row) for row in table(summary)]
    lines = (f'- {_plain(line)}' for line in remarks(summary))
    return '\n'.join([f'## {summary.metric}', '', markdown_table(rows, NUMERIC), '', *lines, ''])


def _plain(text: str) -> str:
    return re.sub(r'<(?=[A-Za-z/!?])', '&lt;', text)


def as_csv(summaries: Sequence[Summary]) -> str:
    """A row for each cell and metric, with its difference to the baseline of the same seed, as the metric gives it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(('variant', 'seed', 'metric', 'value', 'difference', 'parameters', 'error'))
    for summary in summaries:
        reference = summary.reference.by_seed
        for one in summary.results:
            known = one.value is not None and one.seed in reference
            difference = one.value - reference[one.seed] if known else None
            # A label that begins like a formula would be one in a spreadsheet.
            label = f"'{one.label}" if one.label.startswith(('=', '+', '-', '@')) else one.label
            writer.writerow((label, one.seed, summary.metric, one.value, difference, one.parameters, one.error))
    return stream.getvalue()
