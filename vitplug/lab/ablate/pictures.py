"""Pictures of a grid: differences with their intervals, and learning curves with bands."""

import io
import textwrap

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitplug.statistics.seeds import Verdict

from .report import Row, Summary

COLOURS = {Verdict.BETTER: '#0072b2', Verdict.WORSE: '#d55e00'}
OPEN_COLOUR, BASELINE_COLOUR = '#555555', '#999999'
LINE, PANEL, WIDTH = 0.17, 1.9, 4.0  # inches: a line of a label, a panel of curves, the axes of the forest plot
WIDEST = 34  # characters of a line
# Labels are the user's: a dollar in one begins no formula.
AS_WRITTEN = {'text.parse_math': False}


def wrapped(name: str, width: int = WIDEST) -> str:
    """A label in lines, parted behind ``+`` and ``,`` where possible; nothing is cut off."""
    parted = name.replace('+', '+ \0').replace(',', ', \0')  # a mark for the spaces that only part
    lines = textwrap.wrap(parted, width, break_on_hyphens=False)
    return '\n'.join(line.replace(' \0', '').replace('\0', '').strip() for line in lines)


@matplotlib.rc_context(AS_WRITTEN)
def forest_picture(summary: Summary) -> bytes:
    """PNG of all differences to the baseline: a row for each variant, its seeds as dots, and its interval."""
    labels = [wrapped(row.name) for row in summary.compared]
    most = max((label.count('\n') for label in labels), default=0)
    figure = Figure(figsize=(WIDTH, 1.4 + LINE * len(labels) * max(2.4, most + 2)))
    ax = figure.subplots()
    ax.axvline(0, color=BASELINE_COLOUR, linewidth=1)
    if summary.margin is not None:
        ax.axvspan(-summary.margin, summary.margin, color=BASELINE_COLOUR, alpha=0.15, linewidth=0)
    for height, row in enumerate(summary.compared):
        _draw_difference(ax, height, row, summary)
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    side = 'right' if summary.greater_is_better else 'left'
    said = f'difference to {summary.reference.name}, points of {summary.metric} ({side} is better)'
    ax.set_xlabel(wrapped(said, 60))
    title = 'paired seeds, 95 % intervals\nin colour: decided after Holm'
    ax.set_title(title + (f'; grey: within {summary.margin:g}' if summary.margin is not None else ''), fontsize=9)
    ax.grid(axis='x', alpha=0.25)
    ax.spines[['top', 'right', 'left']].set_visible(False)
    return png(figure)


def _draw_difference(ax: Axes, height: int, row: Row, summary: Summary) -> None:
    found = row.comparison
    colour, reference = COLOURS.get(found.verdict, OPEN_COLOUR), summary.reference.values
    words = 'no seed yet'
    if found.difference is not None:
        # Seeds lie below the interval, which would hide them.
        own = [summary.scale * (value - reference[seed]) for seed, value in row.values.items() if seed in reference]
        ax.plot(own, [height + 0.22] * len(own), 'o', color=colour, alpha=0.75, markersize=3.5, markeredgewidth=0)
        ax.plot(found.difference, height, 'D', color=colour, markersize=6)
        words = f'{found.difference:+.2f}\n{found.verdict.value}'
    if found.low is not None:
        ax.plot([found.low, found.high], [height] * 2, color=colour, linewidth=2, solid_capstyle='butt')
        words = f'{found.difference:+.2f}\n[{found.low:+.2f}, {found.high:+.2f}]'
    ax.annotate(words, (1.01, height), xycoords=('axes fraction', 'data'), va='center', fontsize=8, color=colour)


@matplotlib.rc_context(AS_WRITTEN)
def curves_picture(summary: Summary) -> bytes | None:
    """PNG of learning curves: a panel for each variant, with the baseline in grey; bands are one standard deviation.

    None where no cell has two validations: a dot is no curve.
    """
    if all(len(curve) < 2 for row in summary.rows for curve in row.curves.values()):
        return None
    shown = summary.compared or [summary.reference]
    titles = [wrapped(row.name) for row in shown]
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    height = 1.1 + rows * (PANEL + LINE * max(title.count('\n') for title in titles))
    figure = Figure(figsize=(3.6 * columns, height), layout='constrained')
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    for ax, row, title in zip(axes.flat, shown, titles, strict=False):
        _draw_curve(ax, summary.reference, summary.scale, BASELINE_COLOUR)
        if row.comparison:
            _draw_curve(ax, row, summary.scale, COLOURS.get(row.comparison.verdict, '#7b3294'))
        ax.set_title(title, fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.tick_params(labelbottom=True, labelsize=8)
        ax.grid(alpha=0.25)
        ax.spines[['top', 'right']].set_visible(False)
    said = f'{summary.metric}, mean and standard deviation over seeds; grey: {summary.reference.name}'
    figure.suptitle(wrapped(said, 38 * columns), fontsize=9)
    figure.supxlabel('epoch or iteration', fontsize=9)
    return png(figure)


def _draw_curve(ax: Axes, row: Row, scale: float, colour: str) -> None:
    """The mean over seeds at the steps that all have. A cell that still runs counts only while none is done."""
    started = {seed: curve for seed, curve in row.curves.items() if curve}
    used = [curve for seed, curve in started.items() if seed in row.values] or [*started.values()]
    if not used:
        return
    steps = sorted(set.intersection(*map(set, used)))
    values = scale * np.array([[curve[step] for step in steps] for curve in used], float)
    mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1) if len(used) > 1 else 0
    ax.plot(steps, mean, color=colour, linewidth=1.5, marker='o', markersize=3)
    ax.fill_between(steps, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)


def png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format='png', dpi=150, bbox_inches='tight')  # labels may be as wide as they are
    return stream.getvalue()
