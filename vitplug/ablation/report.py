"""The report of a grid: table, pictures, CSV, JSON and a page, from what its cells have written so far.

`vitplug.statistics.seeds` says how variants are compared, `vitplug.ablation.records` what the folder holds.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vitplug.commands import call
from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.seeds import LEVEL, MIN_SEEDS, MOST_SEEDS, seeds_needed
from vitplug.tables import format_table, latex_table, markdown_table

from .records import Cell, Grid, State, read_object
from .report_page import page
from .report_pictures import curves_picture, forest_picture
from .summary import Row, Summary, summarise, summary_of, verdict

FORMAT = 1
NUMERIC = (1, 2, 3, 4, 5, 7, 8, 9)
FOREST, CURVES = 'report_forest.png', 'report_curves.png'
CAPTIONS = {FOREST: 'Differences to the baseline', CURVES: 'Learning curves'}
# Absolute paths in errors, which say where data and homes of a machine lie. Addresses of the net are none.
ABSOLUTE_PATH = re.compile(r'(?<![\w.~:/])(?:/[^\s/\'"`,:;()]+)+/(?=[^\s/])')
CELL_COLUMNS = ('label', 'seed', 'state', 'value', 'best', 'difference', 'seconds', 'memory_mib', 'parameters')
CELL_COLUMNS += ('iterations', 'folder', 'error')


def write_report(folder: str | Path) -> None:
    """Prints the table of a grid and writes the report into its folder; works while cells are running, too.

    The files are ``report.json``, ``report.csv`` (one row for each cell), ``report.md``, ``report.tex``,
    ``report_forest.png``, ``report_curves.png`` (from two validations on) and ``report.html``. Those of an earlier
    report are replaced.

    Args:
        folder: Folder of the grid.

    Raises:
        FileNotFoundError: If the folder is none of a grid.
        ValueError: If a file in it is damaged.
        OSError: If the report cannot be written.
    """
    folder, files = Path(folder), AtomicBackend()
    summary = summarise(folder)
    rows = table(summary)
    pictures = {FOREST: forest_picture(summary), CURVES: curves_picture(summary)}
    pictures = {name: png for name, png in pictures.items() if png is not None}
    texts = {
        'report.json': json.dumps(as_json(summary), indent=1, allow_nan=False) + '\n',
        'report.csv': as_csv(summary),
        'report.md': as_markdown(summary, rows),
        'report.tex': latex_table(rows, NUMERIC),
        'report.html': page(summary, rows, NUMERIC, {CAPTIONS[name]: png for name, png in pictures.items()}),
    }
    for name, png in pictures.items():
        files.put(png, folder / name)
    for name in CAPTIONS.keys() - pictures.keys():
        (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        files.put_text(text, folder / name)
    print('\n'.join([format_table(rows, NUMERIC), '', *remarks(summary), f'report: {folder / "report.html"}']))


# --- the table ---


def table(summary: Summary) -> list[tuple[str, ...]]:
    """Headings and a row for each variant, as text."""
    metric = f'{summary.grid.metric} (sd)'
    headings = ('variant', 'seeds', metric, 'difference', f'{LEVEL:.0%} interval', 'p (Holm)', 'verdict')
    costs = ('s / cell', 'MiB', 'parameters')
    return [(*headings, *costs), *(_table_row(row, summary) for row in summary.rows)]


def _table_row(row: Row, summary: Summary) -> tuple[str, ...]:
    found = row.comparison
    done = len(row.of(State.DONE))
    paired = f' ({len(found.seeds)} paired)' if found and len(found.seeds) < done else ''
    mean = '' if row.mean is None else f'{row.mean:.2f}' + ('' if row.sd is None else f' ({row.sd:.2f})')
    difference, interval, p = '', '', ''
    if found and found.difference is not None:
        difference = f'{found.difference:+.2f}'
    if found and found.p_holm is not None:
        interval = f'{found.low:+.2f} to {found.high:+.2f}'
        p = '<0.001' if found.p_holm < 0.001 else f'{found.p_holm:.3f}'
    costs = (row.seconds, row.memory_mib, row.parameters)
    return (
        row.label,
        f'{done} of {len(row.cells)}{paired}',
        mean,
        difference,
        interval,
        p,
        verdict(row, summary),
        *('' if cost is None else f'{cost:,.0f}' for cost in costs),
    )


def remarks(summary: Summary) -> list[str]:
    """Lines below the table: progress, what the figures are, and cells that failed."""
    lines = [summary.progress()]
    if not summary.is_complete:
        lines.append('preliminary: decide when all cells are done')
    lines.append(
        "differences in points over paired seeds; intervals are not adjusted, verdicts are: p <= 0.05 after Holm's "
        'correction'
    )
    return [*lines, *planning(summary), *mixtures(summary), *(f'failed: {text}' for text in failures(summary))]


def planning(summary: Summary) -> list[str]:
    """The line on the seeds that would find a difference as large as the margin."""
    margin, spread = summary.margin, {row.label: row.comparison.sd for row in summary.compared}
    if margin is None or all(sd is None for sd in spread.values()):
        return []
    found = {label: seeds_needed(margin, sd) for label, sd in spread.items() if sd is not None}
    told = ', '.join(f'{label} {count or f"over {MOST_SEEDS:,}"}' for label, count in found.items())
    return [f'seeds that find a difference of {margin:g} in 80 % of trials, each variant alone: {told}']


def mixtures(summary: Summary) -> list[str]:
    """Lines on cells that were trained on other data or by other code than the rest: differences may come from that."""
    found: dict[str, dict[object, list[str]]] = {}
    for cell in summary.cells:
        named = f'{cell.label} seed {cell.seed}'
        for place, (path, mark) in cell.data.items():
            found.setdefault(f'{place} ({path}) held other files', {}).setdefault(mark, []).append(named)
        if cell.code:
            found.setdefault('the code of vitplug was another', {}).setdefault(cell.code, []).append(named)
    lines = []
    for what, groups in found.items():
        _, *others = sorted(groups.values(), key=len, reverse=True)
        if others:
            cells = [name for group in others for name in group]
            lines.append(f'not comparable without care: {what} for {", ".join(cells[:8])}{" ..." * (len(cells) > 8)}')
    return lines


def failures(summary: Summary) -> list[str]:
    """The failed cells, each with its error."""
    failed = (cell for cell in summary.cells if cell.state is State.FAILED)
    return [f'{cell.label}, seed {cell.seed}: {cell.error}' for cell in failed]


def as_markdown(summary: Summary, rows: Sequence[Sequence[str]]) -> str:
    """The table and its remarks in Markdown."""
    safe = [tuple(_without_html(text).replace('|', r'\|') for text in row) for row in rows]
    lines = (f'- {_without_html(line)}' for line in remarks(summary))
    return '\n'.join([markdown_table(safe, NUMERIC), '', *lines, ''])


def _without_html(text: str) -> str:
    return re.sub(r'<(?=[A-Za-z/!?])', '&lt;', text)


# --- for other programs ---


def as_json(summary: Summary) -> dict[str, Any]:
    """Everything in the report. Means and differences are in points, cells' values as the metric gives them.

    It may be published: of absolute paths, the last part is left.
    """
    grid = summary.grid
    return without_paths(
        format=FORMAT,
        grid=asdict(grid),
        complete=summary.is_complete,
        statistics=dict(
            interval='Student t of paired differences, two-sided, not adjusted',
            level=LEVEL,
            correction='Holm, over all variants',
            equality='two one-sided t tests, Holm',
            margin=summary.margin,
            comparisons=len(summary.compared),
            min_seeds=MIN_SEEDS,
            points_per_unit=summary.scale,
        ),
        variants=[_variant(row, summary) for row in summary.rows],
        cells=[_plain(cell) for cell in summary.cells],
    )


def _variant(row: Row, summary: Summary) -> dict[str, Any]:
    found = row.comparison
    compared = {} if found is None else {**asdict(found), 'verdict': found.verdict.value, 'effect': found.effect}
    states = {state.value: len(row.of(state)) for state in State}
    costs = {name: getattr(row, name) for name in ('seconds', 'memory_mib', 'parameters')}
    return dict(
        label=row.label,
        cells=states,
        mean=row.mean,
        sd=row.sd,
        comparison=compared or None,
        in_words=verdict(row, summary),
        **costs,
        config_diff=row.config_diff,
    )


def _plain(cell: Cell) -> dict[str, Any]:
    content = asdict(cell) | dict(
        state=cell.state.value,
        curve=[[*point] for point in cell.curve.items()],
    )
    del content['config_diff'], content['data']
    return content


def without_paths(**content: Any) -> dict[str, Any]:
    """Content for JSON in which absolute paths are cut to their last part."""
    # Settings may be infinite, which JSON has no number for.
    return json.loads(json.dumps(content, default=str), object_hook=_cut_paths, parse_constant=str)


def _cut_paths(entries: dict) -> dict:
    return {ABSOLUTE_PATH.sub('', key): _cut(value) for key, value in entries.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return ABSOLUTE_PATH.sub('', value)
    return [_cut(one) for one in value] if isinstance(value, list) else value


def read_report(path: str | Path) -> Summary:
    """The grid of a ``report.json``, without its folder. Variants are compared again, from the values of the cells.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no report, or of another version of its format.
    """
    content = read_object(Path(path))
    if content.get('format') != FORMAT:
        raise ValueError(
            f'{path}: format = {content.get("format")!r}, must be {FORMAT}: write it again with '
            f'`{call("ablate", [str(path.parent), "--report"])}`'
        )
    try:
        grid = content['grid']
        grid = Grid(**grid | {name: tuple(grid[name]) for name in ('labels', 'seeds')})
        changes = {variant['label']: variant['config_diff'] for variant in content['variants']}
        cells = [_read_cell(cell, changes[cell['label']]) for cell in content['cells']]
        return summary_of(grid, cells)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path}: is no report of a grid ({type(error).__name__}: {error})') from error


def _read_cell(content: Mapping[str, Any], config_diff: str) -> Cell:
    read = dict(state=State(content['state']), curve=dict(content['curve']), code=tuple(content.get('code') or ()))
    return Cell(**content | read, config_diff=config_diff)


def as_csv(summary: Summary) -> str:
    """One row for each cell, with its difference to the baseline of the same seed; all as the metric gives it."""
    reference = summary.baseline.by_seed
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CELL_COLUMNS, lineterminator='\n')
    writer.writeheader()
    for cell in summary.cells:
        known = cell.value is not None and cell.seed in reference
        difference = cell.value - reference[cell.seed] if known else None
        content = asdict(cell) | dict(state=cell.state.value, difference=difference)
        writer.writerow({name: _without_formula(content[name]) for name in CELL_COLUMNS})
    return stream.getvalue()


def _without_formula(value: Any) -> Any:
    """A cell of a spreadsheet that is no formula: labels and errors may begin as one."""
    return f"'{value}" if isinstance(value, str) and value.startswith(('=', '+', '-', '@', '\t', '\r')) else value
