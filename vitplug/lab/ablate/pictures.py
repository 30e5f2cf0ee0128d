"""Pictures of an ablation: differences with their intervals, and learning curves with bands."""

import textwrap
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from vitplug.lab.study.figures import COLOURS, STEP, curves
from vitplug.lab.study.rows import VALUE, Row
from vitplug.statistics.seeds import Verdict

from .report import Summary, Variant

DECIDED = {Verdict.BETTER: COLOURS[0], Verdict.WORSE: COLOURS[1]}
OPEN_COLOUR, BASELINE_COLOUR = '#555555', '#999999'
LINE, WIDTH = 0.17, 4.0  # inches: a line of a label, the axes of the forest plot
WIDEST = 34  # characters of a line


def wrapped(name: str, width: int = WIDEST) -> str:
    """A label in lines, parted behind ``+`` and ``,`` where possible; nothing is cut off, and a dollar is a dollar."""
    parted = name.replace('$', r'\$').replace('+', '+ \0').replace(',', ', \0')  # a mark for the spaces that only part
    lines = textwrap.wrap(parted, width, break_on_hyphens=False)
    return '\n'.join(line.replace(' \0', '').replace('\0', '').strip() for line in lines)


def forest_picture(summary: Summary) -> Figure:
    """All differences to the baseline: a row for each variant, its seeds as dots, and its interval."""
    labels = [wrapped(variant.name) for variant in summary.compared]
    most = max((label.count('\n') for label in labels), default=0)
    figure = Figure(figsize=(WIDTH, 1.4 + LINE * len(labels) * max(2.4, most + 2)))
    ax = figure.subplots()
    ax.axvline(0, color=BASELINE_COLOUR, linewidth=1)
    if summary.margin is not None:
        ax.axvspan(-summary.margin, summary.margin, color=BASELINE_COLOUR, alpha=0.15, linewidth=0)
    for height, variant in enumerate(summary.compared):
        found, reference = variant.comparison, summary.reference.values
        colour = DECIDED.get(found.verdict, OPEN_COLOUR)
        if found.difference is not None:
            # Seeds lie below the interval, which would hide them.
            own = [summary.scale * (variant.values[seed] - reference[seed]) for seed in found.seeds]
            ax.plot(own, [height + 0.22] * len(own), 'o', color=colour, alpha=0.75, markersize=3.5, markeredgewidth=0)
            ax.plot(found.difference, height, 'D', color=colour, markersize=6)
        if found.low is not None:
            ax.plot([found.low, found.high], [height] * 2, color=colour, linewidth=2, solid_capstyle='butt')
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    side = 'right' if summary.greater_is_better else 'left'
    said = f'difference to {summary.reference.name}, points of {summary.metric} ({side} is better)'
    ax.set_xlabel(wrapped(said, 60))
    title = 'paired seeds, 95 % intervals\nin colour: decided after Holm'
    ax.set_title(title + (f'; grey: within {summary.margin:g}' if summary.margin is not None else ''), fontsize=9)
    ax.grid(axis='x', alpha=0.25)
    ax.spines[['top', 'right', 'left']].set_visible(False)
    return figure


def curves_picture(summary: Summary) -> Figure | None:
    """Learning curves: a panel for each variant, with the baseline; bands are one standard deviation.

    None where no cell has two validations: a dot is no curve.
    """
    if all(len(curve) < 2 for variant in summary.variants for curve in variant.curves.values()):
        return None
    reference, points = summary.reference, []
    for variant in summary.compared or [reference]:
        panel = wrapped(variant.name), STEP
        points += [(panel, row.layer, row) for row in _curve(reference, wrapped(reference.name), summary)]
        if variant.comparison:
            points += [(panel, row.layer, row) for row in _curve(variant, 'the variant', summary)]
    return curves('mean and standard deviation over seeds', summary.metric, points)


def _curve(variant: Variant, name: str, summary: Summary) -> Iterator[Row]:
    """The mean over seeds whose training is done, at the steps that all have."""
    used = [variant.curves[seed] for seed in variant.values]
    for step in sorted(set.intersection(*map(set, used))) if used else ():
        values = summary.scale * np.array([curve[step] for curve in used])
        mean, sd = values.mean(), values.std(ddof=1) if len(used) > 1 else 0
        ends = dict(mean=mean, low=mean - sd, high=mean + sd, n=len(used), over='seeds')
        yield Row(summary.metric, summary.metric, name, '', VALUE, layer=step, head='', **ends)
