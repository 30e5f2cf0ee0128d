"""Pictures of a study: lines over depth or strength, heads by block, maps in a grid of panels.

Each picture of :data:`PICTURES` takes the measure and what there is to show, and gives a figure; None for nothing.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from vitplug.files.whole import write_bytes
from vitplug.statistics.images import evenly_spaced

from .gaussian_fit import fit_gaussian
from .measure import SHOWN, Measure
from .measures.fields import mean_field
from .rows import Shown

DPI = 110
FORMATS = ('png', 'pdf')
# Okabe and Ito: apart for colour-blind people, and, with the markers, in grey print.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS, LINES = 'osv^DP*', ('-', '--', '-.', ':')
# Light to dark without hue jumps.
HEAT, MATRIX = 'magma', 'viridis'
MOST_PANELS, MOST_TICKS = 12, 13
# Letters of a title in an inch.
LETTERS = 11
# The name of the mean of heads.
MEAN = ', mean of heads'

#: By family and axis label, then by model: strength, mean, low and high.
Curves = dict[tuple[str, str], dict[str, list[tuple[float, float, float, float]]]]


def figures_of(measure: Measure, shown: Sequence[Shown], curves: Curves) -> dict[str, Figure]:
    """The pictures of a measure by name: its own, and curves over the strength of conditions."""
    drawn = {measure.name: PICTURES[measure.draw](measure, shown) if shown else None}
    drawn[f'{measure.name}_over_strength'] = over_strength(measure, curves) if curves else None
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save(figure: Figure, path: Path) -> None:
    """Writes a picture in the format of its suffix, as a whole or not at all; the same picture gives the same file."""
    content, suffix = io.BytesIO(), path.suffix[1:]
    figure.savefig(content, format=suffix, dpi=DPI, metadata={'CreationDate': None} if suffix == 'pdf' else None)
    write_bytes(path, content.getvalue())


# --- panels ---


def _panels(
    count: int, measure: Measure, columns: int = 3, inches: tuple[float, float] = (3.6, 2.8)
) -> tuple[Figure, list[Axes]]:
    """A figure with a title and some panels in rows."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(inches[0] * columns, inches[1] * rows + 0.45), layout='constrained')
    title = f'{measure.name.replace("_", " ")} ({measure.source})' if measure.source else measure.name
    figure.suptitle(textwrap.fill(title, int(LETTERS * inches[0] * columns)), fontsize=11)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def _labelled(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(x, fontsize=8)
    ax.set_ylabel(y, fontsize=8)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """A grid in all panels, and one legend for all, where there is more than one model."""
    for ax in axes:
        ax.grid(alpha=0.3)
    lines = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(lines) > 1:
        columns = max(1, min(len(lines), int(figure.get_figwidth() * LETTERS / (max(map(len, lines)) + 6))))
        figure.legend(lines.values(), lines, loc='outside lower center', ncols=columns, frameon=False, fontsize=8)


def _style(number: int) -> dict:
    """Colour, marker and line of the models in their order."""
    at = number % len(COLOURS)
    return dict(color=COLOURS[at], marker=MARKERS[at], linestyle=LINES[number % len(LINES)])


def _some(items: Sequence) -> list:
    """At most 12 of some things, evenly spaced, the first and the last among them."""
    return [items[index] for index in evenly_spaced(len(items), MOST_PANELS)]


# --- lines ---


def _band(ax: Axes, label: str, number: int, points: np.ndarray) -> None:
    """A line with its intervals: points are x, mean, low and high."""
    x, mean, low, high = points
    ax.fill_between(x, low, high, color=_style(number)['color'], alpha=0.2, linewidth=0)
    ax.plot(x, mean, label=label, markersize=5, **_style(number))


def over_depth(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Values over the blocks, a panel each: means with bands of their intervals, heads as dots."""
    values = [name for one in shown for name, estimate in one.estimates.items() if estimate.mean.ndim in (1, 2)]
    names = list(dict.fromkeys(name.removesuffix(MEAN) for name in values))
    if not names or measure.axes[:1] != ('layer',):
        return None
    figure, axes = _panels(len(names), measure)
    for ax, name in zip(axes, names, strict=True):
        for number, one in enumerate(shown):
            heads, mean = one.estimates.get(name), one.estimates.get(name + MEAN, one.estimates.get(name))
            if mean is None or mean.mean.ndim != 1:
                continue
            for head in heads.mean.T if heads is not None and heads.mean.ndim == 2 else ():
                ax.plot(range(len(head)), head, '.', color=_style(number)['color'], alpha=0.35, markersize=4)
            blocks = np.flatnonzero(np.isfinite(mean.mean))
            _band(ax, one.label, number, np.stack([blocks, *(a[blocks] for a in (mean.mean, mean.low, mean.high))]))
        _labelled(ax, name, 'block', measure.unit)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, axes)
    return figure


def over_strength(measure: Measure, curves: Curves) -> Figure:
    """Scores over the strength of conditions, a panel for each family."""
    figure, axes = _panels(len(curves), measure)
    for ax, ((family, unit), by_model) in zip(axes, curves.items(), strict=True):
        for number, (label, points) in enumerate(by_model.items()):
            _band(ax, label, number, np.array(sorted(points)).T)
        _labelled(ax, family, unit, measure.unit)
    _legend(figure, axes)
    return figure


# --- maps ---


def matrices(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Similarities of blocks from 0 to 1, a panel for each model."""
    found = [(one.label, e.mean) for one in shown for e in one.estimates.values() if e.mean.ndim == 2]
    if not found:
        return None
    figure, axes = _panels(len(found), measure, inches=(3.6, 3.2))
    for ax, (name, matrix) in zip(axes, found, strict=True):
        picture = ax.imshow(np.ma.masked_invalid(matrix), cmap=MATRIX, vmin=0, vmax=1, origin='lower')
        _labelled(ax, textwrap.fill(name, 40), 'block', 'block')
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))
    figure.colorbar(picture, ax=axes, shrink=0.85)
    return figure


def _fitted(
    measure: Measure, found: Mapping[str, np.ndarray], unit: str, show: Callable = np.asarray, **layout
) -> Figure | None:
    """Maps with ellipses at one and two sigmas of the Gaussian fitted to each, cut off at the edges."""
    if not found:
        return None
    figure, axes = _panels(len(found), measure, **layout)
    for ax, (name, values) in zip(axes, found.items(), strict=True):
        fit = fit_gaussian(values)
        ax.imshow(show(values), cmap=HEAT)
        limits = dict(xlim=ax.get_xlim(), ylim=ax.get_ylim())
        for sigmas, line in ((1, '-'), (2, '--')) if fit.converged else ():
            sides = 2 * sigmas * fit.sigma_x, 2 * sigmas * fit.sigma_y
            ax.add_patch(Ellipse((fit.x, fit.y), *sides, fill=False, color='white', linestyle=line))
        ax.set(**limits)
        ax.set_title(textwrap.fill(f'{name}: {fit}', int(13 * layout['inches'][0])), fontsize=8)
        ax.set_xlabel(unit, fontsize=8)
    return figure


def receptive_fields(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Maps of gradients in pixels, a panel for each model."""
    found = {}
    for one in shown:
        noise = ' (untrained: rounding noise)' if one.units[0]['is noise'] else ''
        found[one.label + noise] = mean_field([unit['field'] for unit in one.units])
    # The square root shows the tails beside the peak.
    return _fitted(measure, found, 'pixels; square root of the gradient', np.sqrt, inches=(3.6, 4.0))


def biases(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Position biases of the central query of at most 12 evenly spaced blocks of each model."""
    found = {}
    for one in shown:
        for name in _some([name for unit in one.units for name in unit if name.startswith(SHOWN)]):
            found[f'{one.label}, {name.removeprefix(SHOWN)}'] = one.units[0][name]
    return _fitted(measure, found, 'tokens', columns=4, inches=(2.6, 3.2))


def heat(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Images of the first model, each beside the heat maps of all models laid over it."""
    columns = [
        (one, name)
        for one in shown
        for name in dict.fromkeys(name for unit in one.units for name in unit)
        if name not in ('picture', 'target')
    ]
    names = ['image', *(', '.join(filter(None, (one.label, name))) for one, name in columns)]
    rows = len(shown[0].units)
    figure, axes = _panels(rows * len(names), measure, len(names), (max(2.1, 4 / len(names)), 2.35))
    for at in range(rows):
        line = axes[at * len(names) : (at + 1) * len(names)]
        line[0].imshow(shown[0].units[at]['picture'])
        for ax, (one, name) in zip(line[1:], columns, strict=True):
            unit = one.units[at]
            ax.set_xlabel(textwrap.fill(str(unit.get('target', '')), 34), fontsize=7)
            ax.imshow(unit['picture'].mean(-1), cmap='gray', vmin=0, vmax=255)
            if name in unit:
                ax.imshow(unit[name], cmap=HEAT, alpha=0.6)
    for ax, name in zip(axes, names, strict=False):
        ax.set_title(textwrap.fill(name, 24), fontsize=8)
    for ax in axes:
        ax.set(xticks=[], yticks=[])
    return figure


def rows_of_maps(measure: Measure, shown: Sequence[Shown]) -> Figure | None:
    """Maps in rows: arrays named ``ROW|COLUMN``, or a row for each model. Each map has a scale of its own."""
    rows: dict[str, dict[str, np.ndarray]] = {}
    for one in shown:
        for unit in one.units:
            for name, values in unit.items():
                row, bar, column = name.partition('|')
                title = ', '.join(filter(None, (one.label, row))) if bar else one.label
                rows.setdefault(title, {})[column if bar else name] = values
    if not rows:
        return None
    most = max(map(len, rows.values()))
    figure, axes = _panels(len(rows) * most, measure, most, (max(1.8, 5 / most), 1.9))
    limits = dict(vmin=-1, vmax=1) if measure.unit == 'cosine' else {}
    for at, (row, maps_of) in enumerate(rows.items()):
        line = axes[at * most : (at + 1) * most]
        for ax, (name, values) in zip(line, maps_of.items(), strict=False):
            wide = values.shape[1] > 4 * values.shape[0]
            ax.imshow(values, cmap=MATRIX if limits else HEAT, aspect='auto' if wide else 'equal', **limits)
            ax.set_title(name.replace(' (', '\n('), fontsize=8)
        for ax in line[len(maps_of) :]:
            ax.set_axis_off()
        line[0].set_ylabel(textwrap.fill(row, 22), fontsize=8)
    for ax in axes:
        ax.set(xticks=[], yticks=[])
    return figure


#: By the name that a measure gives as :attr:`~.measure.Measure.draw`.
PICTURES: Mapping[str, Callable[[Measure, Sequence[Shown]], Figure | None]] = {
    function.__name__: function for function in (over_depth, matrices, receptive_fields, biases, heat, rows_of_maps)
}
