"""Pictures of a grid: differences with their intervals, and learning curves with bands."""

import io

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitplug.statistics.seeds import Comparison, Verdict

from .summary import Curve, Row, Summary, curve

DPI = 150
COLOURS = {Verdict.BETTER: '#0072b2', Verdict.WORSE: '#d55e00'}
OPEN_COLOUR, BASELINE_COLOUR = '#555555', '#999999'
WIDTH, ROW, PANEL = 6.0, 0.4, 1.9  # inches
COLUMNS = 2
MOST_PANELS = 24
MOST_DOTS = 12
"""Validations of a curve up to which each is marked: lines between few of them are a guess."""
# Labels are the user's: a dollar in one begins no formula.
AS_WRITTEN = {'text.parse_math': False}


@matplotlib.rc_context(AS_WRITTEN)
def forest_picture(summary: Summary) -> bytes:
    """PNG of all differences to the baseline: a row for each variant, its seeds as dots, and its interval."""
    rows, grid = summary.compared, summary.grid
    figure = Figure(figsize=(WIDTH, 1.3 + ROW * max(1, len(rows))), layout='constrained')
    ax = figure.subplots()
    ax.axvline(0, color=BASELINE_COLOUR, linewidth=1)
    if summary.margin is not None:
        ax.axvspan(-summary.margin, summary.margin, color=BASELINE_COLOUR, alpha=0.15, linewidth=0)
    for height, row in enumerate(rows):
        _draw_difference(ax, height, row, summary)
    ax.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=9)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    side = 'right' if grid.greater_is_better else 'left'
    ax.set_xlabel(f'difference to {grid.baseline} in {grid.metric}, points ({side} is better)', fontsize=9)
    title = 'paired seeds, 95 % intervals; in colour: decided after Holm'
    if summary.margin is not None:
        title += f'; grey: within {summary.margin:g}'
    ax.set_title(title, fontsize=9, loc='left')
    ax.grid(axis='x', alpha=0.25)
    ax.spines[['top', 'right', 'left']].set_visible(False)
    return png(figure)


def _draw_difference(ax: Axes, height: int, row: Row, summary: Summary) -> None:
    found = row.comparison
    if found.difference is None:
        _write_beside(ax, height, 'no seed yet', OPEN_COLOUR)
        return
    colour = COLOURS.get(found.verdict, OPEN_COLOUR)
    reference = summary.baseline.by_seed
    own = [summary.scale * (value - reference[seed]) for seed, value in row.by_seed.items() if seed in reference]
    # Below the interval, which would hide them.
    ax.plot(own, [height + 0.22] * len(own), 'o', color=colour, alpha=0.75, markersize=3.5, markeredgewidth=0)
    if found.low is not None:
        ax.plot([found.low, found.high], [height] * 2, color=colour, linewidth=2, solid_capstyle='butt')
    ax.plot(found.difference, height, 'D', color=colour, markersize=6)
    _write_beside(ax, height, _in_words(found), colour)


def _in_words(found: Comparison) -> str:
    if found.p_holm is None:
        return f'{found.difference:+.2f}, {found.verdict.value}'
    return f'{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]'


def _write_beside(ax: Axes, height: int, text: str, colour: str) -> None:
    """Writes to the right of the axes."""
    ax.annotate(text, (1.01, height), xycoords=('axes fraction', 'data'), va='center', fontsize=8, color=colour)


@matplotlib.rc_context(AS_WRITTEN)
def curves_picture(summary: Summary) -> bytes | None:
    """PNG of learning curves: a panel for each variant, with the baseline in grey; bands are one standard deviation.

    None where no cell has two validations: a dot is no curve.
    """
    if all(len(cell.curve) < 2 for cell in summary.cells):
        return None
    shown = summary.compared[:MOST_PANELS] or [summary.baseline]
    columns = min(COLUMNS, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(WIDTH, 0.9 + PANEL * lines), layout='constrained')
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    reference = curve(summary.baseline.cells, summary.scale)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    for ax, row in zip(axes.flat, shown, strict=False):
        _draw_curve(ax, reference, BASELINE_COLOUR)
        if row.comparison:
            found = curve(row.cells, summary.scale)
            _draw_curve(ax, found, COLOURS.get(row.comparison.verdict, '#7b3294'))
            seeds = found.seeds if found else 0
            ax.set_title(f'{row.label} ({seeds} seed{"s" * (seeds != 1)})', fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.tick_params(labelbottom=True, labelsize=8)
        ax.grid(alpha=0.25)
        ax.spines[['top', 'right']].set_visible(False)
    more = len(summary.compared) - len(shown)
    said = f'{summary.grid.metric}, mean and standard deviation over seeds; grey: {summary.grid.baseline}'
    if more > 0:
        said += f'; the first {len(shown)} of {len(summary.compared)} variants'
    figure.suptitle(said, fontsize=9, x=0.01, ha='left')
    by = next((cell.by for cell in summary.cells if cell.curve), 'step')
    figure.supxlabel('iteration' if by == 'iter' else by, fontsize=9)
    return png(figure)


def _draw_curve(ax: Axes, found: Curve | None, colour: str) -> None:
    if found is None:
        return
    marker = 'o' if len(found.steps) <= MOST_DOTS else None
    ax.plot(found.steps, found.mean, color=colour, linewidth=1.5, marker=marker, markersize=3)
    ax.fill_between(found.steps, found.mean - found.sd, found.mean + found.sd, color=colour, alpha=0.2, linewidth=0)


def png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format='png', dpi=DPI)
    return stream.getvalue()
