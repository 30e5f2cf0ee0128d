"""The report as one HTML file: nothing is loaded from elsewhere, no scripts, readable on a phone."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from vitplug.statistics.seeds import Verdict

from .records import State
from .summary import Row, Summary, verdict

STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --better: #0072b2; --worse: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --better: #56b4e9; --worse: #f0914a; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.better .verdict { color: var(--better); font-weight: 600; }
tr.worse .verdict { color: var(--worse); font-weight: 600; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .3rem; }
pre { overflow-x: auto; background: var(--soft); padding: .6rem; font-size: .8rem; border-radius: .3rem; }
summary { cursor: pointer; padding: .3rem 0; overflow-wrap: anywhere; }
.note { background: var(--soft); padding: .6rem .8rem; border-radius: .3rem; }
.error { overflow-wrap: anywhere; }
@media (max-width: 50rem) {
  table.stacked thead { display: none; }
  table.stacked tr { display: block; border: 1px solid var(--line); border-radius: .4rem; margin: .7rem 0; }
  table.stacked td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .15rem .4rem; }
  table.stacked td:empty { display: none; }
  table.stacked td::before { content: attr(data-name); opacity: .7; white-space: nowrap; }
  table.stacked td:first-child { font-weight: 700; font-size: 1.05rem; }
  table.stacked td:first-child::before { content: none; }
}
"""

HOW_TO_READ = (
    'Every variant is compared with the baseline seed by seed: with one seed, both start from the same host weights '
    'and see the same data in the same order. The difference is a mean over these pairs, in points of the metric after '
    'the last validation.',
    "The interval is Student's t for paired differences. Alone, such an interval covers the true difference in 95 % "
    'of all experiments; it is not adjusted for the number of variants.',
    "p is the paired t test's, after Holm's correction over all variants of the grid. “Better” and “worse” mean "
    'p ≤ 0.05: the probability of any false one in this table is at most 5 %. An interval without zero in it may '
    'therefore stand beside “no difference shown”.',
    '“Equal within m” means that the difference is shown to be smaller than the margin m, which was chosen before: two '
    "one-sided t tests, p ≤ 0.05 after Holm's correction. “No difference shown” is no proof of equality: differences "
    'within the interval remain possible.',
    'Seconds and memory are those of the finished cells; other work on the machine is in them.',
)


def page(summary: Summary, rows: Sequence[Sequence[str]], numeric: Iterable[int], pictures: Mapping[str, bytes]) -> str:
    """The page.

    Args:
        summary: The grid.
        rows: The table as text: headings, then one row for each variant in the order of ``summary.rows``.
        numeric: Columns with numbers.
        pictures: PNG by caption.
    """
    grid = summary.grid
    title = f'{grid.metric}: {len(summary.compared)} variants against {grid.baseline}'
    parts = [
        f'<h1>{escape(title)}</h1>',
        f'<p>{escape(conclusion(summary))}</p>',
        _progress(summary),
        _table(summary, rows, {*numeric}),
        *(_picture(caption, png) for caption, png in pictures.items()),
        '<h2>How to read it</h2>',
        *(f'<p>{escape(text)}</p>' for text in HOW_TO_READ),
        *_not_done(summary),
        *_differences(summary),
        *_facts(grid.facts),
    ]
    body = '\n'.join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n'
    )


def conclusion(summary: Summary) -> str:
    """The verdicts in one sentence."""
    named: dict[str, list[str]] = {}
    for row in sorted(summary.compared, key=lambda row: [*Verdict].index(row.comparison.verdict)):
        named.setdefault(verdict(row, summary), []).append(row.label)
    said = [f'{", ".join(labels)}: {words}' for words, labels in named.items()]
    return '; '.join(said) + '.' if said else 'There is nothing to compare.'


def _progress(summary: Summary) -> str:
    text = summary.progress() + '.'
    if not summary.is_complete:
        text += ' These are preliminary figures. Decide when all cells are done: who looks often finds more by chance.'
    return f'<p class="note">{escape(text)}</p>'


def _table(summary: Summary, rows: Sequence[Sequence[str]], numeric: set[int]) -> str:
    headings, *body = rows
    head = ''.join(f'<th{_number(i in numeric)}>{escape(text)}</th>' for i, text in enumerate(headings))
    lines = [
        f'<tr class="{_kind(row)}">{_cells(headings, texts, numeric)}</tr>'
        for row, texts in zip(summary.rows, body, strict=True)
    ]
    return (
        f'<table class="stacked">\n<thead><tr>{head}</tr></thead>\n<tbody>\n' + '\n'.join(lines) + '\n</tbody></table>'
    )


def _kind(row: Row) -> str:
    return row.comparison.verdict.name.lower() if row.comparison else 'baseline'


def _cells(headings: Sequence[str], texts: Sequence[str], numeric: set[int]) -> str:
    return ''.join(
        f'<td{_number(i in numeric, name)} data-name="{escape(name)}">{escape(text)}</td>'
        for i, (name, text) in enumerate(zip(headings, texts, strict=True))
    )


def _number(is_number: bool, name: str = '') -> str:
    if is_number:
        return ' class="number"'
    return ' class="verdict"' if name == 'verdict' else ''


def _picture(caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<h2>{escape(caption)}</h2>\n<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'


def _not_done(summary: Summary) -> list[str]:
    cells = [cell for cell in summary.cells if cell.state is not State.DONE]
    if not cells:
        return []
    lines = [
        f'<tr><td>{escape(cell.label)}</td><td class="number">{cell.seed}</td><td>{cell.state.value}</td>'
        f'<td class="error">{escape(cell.error)}</td></tr>'
        for cell in cells
    ]
    head = '<tr><th>variant</th><th class="number">seed</th><th>state</th><th>error</th></tr>'
    return ['<h2>Cells that are not done</h2>', f'<table><thead>{head}</thead><tbody>', *lines, '</tbody></table>']


def _differences(summary: Summary) -> list[str]:
    found = [(row.label, row.config_diff) for row in summary.compared if row.config_diff]
    if not found:
        return []
    return [
        f'<h2>Configs against {escape(summary.grid.baseline)}</h2>',
        *(f'<details><summary>{escape(a)}</summary><pre>{escape(b)}</pre></details>' for a, b in found),
    ]


def _facts(facts: Mapping) -> list[str]:
    if not facts:
        return []
    return ['<h2>The grid</h2>', f'<pre>{escape(json.dumps(facts, indent=2, default=str))}</pre>']
