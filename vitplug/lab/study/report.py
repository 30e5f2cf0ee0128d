"""What a study leaves in its folder: numbers as CSV and JSON, tables as text, pictures."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vitplug.files.whole import write_text
from vitplug.stacks import DISTRIBUTIONS, installed
from vitplug.statistics.images import LEVEL
from vitplug.tables import csv_text, format_table

from . import figures
from .conditions import Condition
from .engine import Study
from .measure import Measure
from .rows import DIFFERENCE, DROP, OF_DROPS, REPEATS, VALUE, Found, Row, rows_of
from .runs import Run

JSON, CSV = 'results.json', 'results.csv'
# Significant digits of a mean.
DIGITS = 4
# Differences of means below this are rounding.
ROUNDING = 1e-12


def check_folder(folder: Path) -> None:
    """Checks that a folder is new, empty, or of a study.

    Raises:
        FileExistsError: If it holds other files, or is one.
    """
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or (set(there) - {'.lock'} and 'arrays' not in there):
        raise FileExistsError(f'--out: {folder} holds other files, or is one: choose a new or an empty folder')


def write(
    study: Study,
    folder: Path,
    runs: Sequence[Run],
    conditions: Sequence[Condition],
    measures: Sequence[Measure],
    papers: Mapping[str, str],
    suffix: str = 'png',
    **about: object,
) -> tuple[list[Row], list[Path]]:
    """Writes all results of an evaluated study, and gives the rows and the pictures.

    ``papers`` are the papers' figures by condition, ``about`` is what is said of the call.
    """
    rows, pictures = [], []
    for measure in measures:
        found = Found.of(study, runs, conditions, measure)
        own = list(rows_of(found, conditions, measure, runs[0].label))
        rows += own
        for name, figure in figures.figures_of(measure, found.shown(), _curves(conditions, own)).items():
            pictures.append(folder / f'{name.replace(":", "_")}.{suffix}')
            figures.save(figure, pictures[-1])
    write_text(folder / CSV, csv_text(Row._fields, [[_cell(value) for value in row] for row in rows]))
    names = [name for names in DISTRIBUTIONS.values() for name in names]
    content = dict(
        about,
        versions=dict(python=platform.python_version()) | installed(('vitplug', 'torch', 'numpy', 'scipy', *names)),
        interval=f'{LEVEL:.0%}; `over` says over what',
        models={
            f'{run.label}, seed {run.seed}': dict(config=str(run.cfg.filename), content=run.content) for run in runs
        },
        measures={m.name: dict(definition=m.definition, unit=m.unit, source=m.source, axes=m.axes) for m in measures},
        paper=papers,
        skipped=list(study.skipped.values()),
        left_out=[
            dict(model=model, condition=condition, measure=measure, why=why)
            for (model, condition, measure), why in study.left_out.items()
        ],
        rows=[{name: _cell(value, None) for name, value in row._asdict().items()} for row in rows],
    )
    write_text(folder / JSON, json.dumps(content, indent=1))
    return rows, pictures


def _cell(value, undefined: str | None = ''):
    """A number that is not finite is left empty."""
    return undefined if isinstance(value, float) and not np.isfinite(value) else value


def _curves(conditions: Sequence[Condition], rows: Sequence[Row]) -> figures.Curves:
    """Points of numbers of the whole network over the strength, of families with several."""
    strengths = {one.name: ((one.family, one.unit), one.strength) for one in conditions if one.family}
    curves: figures.Curves = {}
    for row in rows:
        if row.quantity == VALUE and row.layer == '' and row.condition in strengths and row.value == rows[0].value:
            family, strength = strengths[row.condition]
            curves.setdefault(family, {}).setdefault(row.model, []).append((strength, row.mean, row.low, row.high))
    return {family: models for family, models in curves.items() if max(map(len, models.values())) > 1}


# --- tables ---


def tables(rows: Sequence[Row], papers: Mapping[str, str]) -> str:
    """Two tables: numbers of the whole network by condition, and numbers by block."""
    return '\n\n'.join(filter(None, (_by_condition(rows, papers), _by_depth(rows))))


def _by_condition(rows: Sequence[Row], papers: Mapping[str, str]) -> str:
    whole = [row for row in rows if row.layer == '' and row.quantity != OF_DROPS]
    if not whole:
        return ''
    models = list(dict.fromkeys(row.model for row in whole))
    words = {VALUE: '{}', DROP: 'drop {}', DIFFERENCE: f'{{}} - {models[0]}', REPEATS: '{}, over repeats'}
    cells = {(row.measure, row.value, row.condition, row.quantity, row.model): row for row in whole}
    keys = list(dict.fromkeys(key[:3] for key in cells))
    columns = [(quantity, model) for quantity in words for model in models]
    columns = [column for column in columns if any((*key, *column) in cells for key in keys)]
    lines = [('measure', 'value', 'condition', *(words[q].format(m) for q, m in columns), '± over', 'the paper')]
    for key in keys:
        there = [cells.get((*key, *column)) for column in columns]
        first = next(row for row in there if row)
        figure = next((text for name, text in papers.items() if key[2].startswith(name)), '')
        lines.append((*key, *map(interval, there), f'{first.n} {first.over}', figure))
    if not any(line[-1] for line in lines[1:]):
        lines = [line[:-1] for line in lines]
    return format_table(lines, numeric=range(3, 3 + len(columns)))


def _by_depth(rows: Sequence[Row]) -> str:
    """The first, the middle and the last block of numbers by block."""
    kept: dict[tuple, dict[int, Row]] = {}
    for row in rows:
        if row.layer != '' and row.head == '' and row.quantity in (VALUE, DIFFERENCE):
            kept.setdefault((row.measure, row.value, row.condition, row.quantity, row.model), {})[row.layer] = row
    lines = [('measure', 'value', 'condition', 'model', 'first block', 'middle block', 'last block', '± over')]
    for (measure, value, condition, quantity, model), by_layer in kept.items():
        last = max(by_layer)
        chosen = [by_layer.get(layer) for layer in (min(by_layer), (last + 1) // 2, last)]
        name = f'{model}, difference' if quantity == DIFFERENCE else model
        over = f'{by_layer[last].n or ""} {by_layer[last].over}'.strip()
        lines.append((measure, value, condition, name, *map(interval, chosen), over))
    return format_table(lines, numeric=(4, 5, 6)) if len(lines) > 1 else ''


def interval(row: Row | None) -> str:
    """A number with half of its 95 % interval."""
    if row is None:
        return ''
    mean = 0.0 if abs(row.mean) < ROUNDING else row.mean
    sign = '+' if row.quantity in (DIFFERENCE, DROP) and mean else ''
    half = (row.high - row.low) / 2
    return f'{mean:{sign}.{DIGITS}g}' + (f' ± {half:.2g}' if np.isfinite(half) else '')
