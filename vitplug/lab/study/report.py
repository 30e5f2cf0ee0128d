"""What a study leaves in its folder: numbers as CSV, what they are as JSON, a table as text, pictures."""

import json
import platform
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vitplug.files.whole import write_text
from vitplug.statistics.images import LEVEL
from vitplug.tables import csv_text, format_table

from .engine import Study
from .figures import figures_of
from .rows import DIFFERENCE, DROP, REPEATS, VALUE, Row, rows_of

JSON, CSV = 'results.json', 'results.csv'
PACKAGES = ('vitplug', 'torch', 'numpy', 'scipy', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')
# Differences of means below this are rounding.
ROUNDING = 1e-12
# Columns of the table, by quantity.
WORDS = {VALUE: 'number', DROP: 'drop', DIFFERENCE: 'minus {}', REPEATS: 'over repeats'}


def write(study: Study, folder: Path, **about: object) -> tuple[list[Row], list[Path]]:
    """Writes all results of an evaluated study, and gives the rows and the pictures; ``about`` is said of the call.

    If nothing was measured, a ValueError says why.
    """
    of_measures = {measure: list(rows_of(study, measure)) for measure in study.measures}
    pictures: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for measure, rows in of_measures.items():
        for name, figure in figures_of(study, measure, rows).items():
            pictures.append(folder / f'{name.replace(":", "_")}.png')
            figure.savefig(pictures[-1], dpi=110)
    rows = [row for own in of_measures.values() for row in own]
    if not rows and not pictures:
        reasons = dict.fromkeys(f'{measure}: {why}' for (*_, measure), why in study.left_out.items())
        raise ValueError(f'nothing can be measured: {"; ".join(reasons)}')
    write_text(folder / CSV, csv_text(Row._fields, rows))
    used = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    content = dict(
        about,
        versions=dict(used, python=platform.python_version()),
        interval=f'{LEVEL:.0%}; `over` says over what',
        models=[dict(name=r.label, seed=r.seed, config=str(r.cfg.filename), content=r.content) for r in study.runs],
        measures={m.name: dict(definition=m.definition, unit=m.unit, source=m.source) for m in of_measures},
        skipped=list(study.skipped.values()),
        left_out=[dict(model=m, condition=c, measure=one, why=why) for (m, c, one), why in study.left_out.items()],
    )
    write_text(folder / JSON, json.dumps(content, indent=1))
    return rows, pictures


def table(rows: Sequence[Row], papers: Mapping[str, str]) -> str:
    """Numbers of networks, and of the first, the middle and the last block, by condition and model.

    ``papers`` are the papers' figures by condition.
    """
    cells: dict[tuple, dict[str, Row]] = defaultdict(dict)
    last: dict[str, int] = defaultdict(int)
    for row in rows:
        last[row.measure] = max(last[row.measure], row.layer or 0)
    for row in rows:
        if row.head == '' and row.layer in ('', 0, (last[row.measure] + 1) // 2, last[row.measure]):
            value = row.value if row.layer == '' else f'{row.value}, block {row.layer}'
            cells[row.measure, value, row.condition, row.model][row.quantity] = row
    shown = [quantity for quantity in WORDS if any(quantity in found for found in cells.values())]
    words = [WORDS[quantity].format(rows[0].model) for quantity in shown]
    lines = [('measure', 'value', 'condition', 'model', *words, '± over', *(['the paper'] if papers else []))]
    places = [{name: place for place, name in enumerate(dict.fromkeys(names))} for names in zip(*cells, strict=True)]
    # The models of a condition one below the other, in the order of the call.
    for key in sorted(cells, key=lambda key: [known[name] for known, name in zip(places, key, strict=True)]):
        its = papers if key[1] == rows[0].value else {}  # of top-1 and mIoU, not of the other scores
        # A condition may say more than the paper, behind a colon or a comma.
        said, found = f'{key[2]},'.replace(':', ','), cells[key]
        figure = next((text for name, text in its.items() if said.startswith(f'{name},')), '')
        numbers = [interval(found.get(quantity)) for quantity in shown]
        own = found.get(VALUE) or next(iter(found.values()))
        lines.append((*key, *numbers, f'{own.n or ""} {own.over}'.strip(), *([figure] if papers else [])))
    return format_table(lines, numeric=range(4, 4 + len(shown))) if cells else ''


def interval(row: Row | None) -> str:
    """A number with half of its 95 % interval."""
    if row is None:
        return ''
    mean = 0.0 if abs(row.mean) < ROUNDING else row.mean
    sign = '+' if row.quantity in (DIFFERENCE, DROP) and mean else ''
    half = (row.high - row.low) / 2
    return f'{mean:{sign}.4g}' + (f' ± {half:.2g}' if np.isfinite(half) else '')
