"""Pictures of a study: lines over depth or strength, heads by block, matrices of blocks, heat over images.

A measure's ``draw`` takes the measure and what there is to show, and gives a figure; None for nothing to show.
"""

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.images import Arrays, Estimate, evenly_spaced

from .quantities.fields import mean_field
from .quantities.gaussian_fit import GaussianFit, fit_gaussian

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
# Prefix of arrays that are drawn and are no numbers; the name of the mean of heads.
SHOWN, MEAN = 'shown ', ', mean of heads'


class Shown(NamedTuple):
    """What a measure gave for a model under a condition.

    Attributes:
        label: Of the model, and of the condition where there are several.
        estimates: By value.
        units: What each image, or group of images, gave.
    """

    label: str
    estimates: Mapping[str, Estimate]
    units: Sequence[Arrays]


def save(figure: Figure, path: Path) -> None:
    """Writes a picture in the format of its suffix, as a whole or not at all; the same picture gives the same file."""
    content, suffix = io.BytesIO(), path.suffix[1:]
    figure.savefig(content, format=suffix, dpi=DPI, metadata={'CreationDate': None} if suffix == 'pdf' else None)
    AtomicBackend().put(content.getvalue(), path)


def style(number: int) -> dict:
    """Colour, marker and line of the models in their order."""
    at = number % len(COLOURS)
    return dict(color=COLOURS[at], marker=MARKERS[at], linestyle=LINES[number % len(LINES)])


def panels(
    count: int, title: str, columns: int = 3, inches: tuple[float, float] = (3.6, 2.8)
) -> tuple[Figure, list[Axes]]:
    """A figure with a title and some panels in rows."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(inches[0] * columns, inches[1] * rows + 0.45), layout='constrained')
    figure.suptitle(textwrap.fill(title, int(LETTERS * inches[0] * columns)), fontsize=11)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, where there is more than one model."""
    lines = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(lines) > 1:
        columns = max(1, min(len(lines), int(figure.get_figwidth() * LETTERS / (max(map(len, lines)) + 6))))
        figure.legend(lines.values(), lines, loc='outside lower center', ncols=columns, frameon=False, fontsize=8)


def _title(measure) -> str:
    return f'{measure.name.replace("_", " ")} ({measure.source})'


def over_depth(measure, shown: Sequence[Shown]) -> Figure | None:
    """Values over the blocks, a panel each: means with bands of their intervals, heads as dots."""
    names = dict.fromkeys(
        name.removesuffix(MEAN) for one in shown for name, e in one.estimates.items() if e.mean.ndim in (1, 2)
    )
    if not names or measure.axes[:1] != ('layer',):
        return None
    figure, axes = panels(len(names), _title(measure))
    for ax, name in zip(axes, names, strict=True):
        for number, one in enumerate(shown):
            estimate = one.estimates.get(name + MEAN, one.estimates.get(name))
            if estimate is not None and estimate.mean.ndim == 1:
                heads = one.estimates.get(name)
                _line(ax, one.label, number, estimate, heads if heads is not None and heads.mean.ndim == 2 else None)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel('block')
        ax.set_ylabel(measure.unit)
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, axes)
    return figure


def _line(ax: Axes, label: str, number: int, mean: Estimate, heads: Estimate | None) -> None:
    look = style(number)
    blocks = np.flatnonzero(np.isfinite(mean.mean))
    if heads is not None:
        for head in heads.mean.T:
            ax.plot(range(len(head)), head, '.', color=look['color'], alpha=0.35, markersize=4)
    ax.fill_between(blocks, mean.low[blocks], mean.high[blocks], color=look['color'], alpha=0.2, linewidth=0)
    ax.plot(blocks, mean.mean[blocks], label=label, markersize=5, **look)


def over_strength(
    title: str, unit: str, curves: Mapping[str, Mapping[str, Sequence[tuple[float, float, float, float]]]]
):
    """Scores over the strength of conditions, a panel for each family: points are strength, mean, low and high.

    Args:
        title: Title of the figure.
        unit: Of the scores.
        curves: By family and axis label, then by model.
    """
    figure, axes = panels(len(curves), title)
    for ax, (family, by_model) in zip(axes, curves.items(), strict=True):
        for number, (label, points) in enumerate(by_model.items()):
            x, mean, low, high = np.array(sorted(points)).T
            look = style(number)
            ax.fill_between(x, low, high, color=look['color'], alpha=0.2, linewidth=0)
            ax.plot(x, mean, label=label, markersize=5, **look)
        name, _, across = family.partition('|')
        ax.set_title(name, fontsize=9)
        ax.set_xlabel(across, fontsize=8)
        ax.set_ylabel(unit)
        ax.grid(alpha=0.3)
    legend(figure, axes)
    return figure


def sorted_heads(measure, shown: Sequence[Shown]) -> Figure | None:
    """The heads of each block, sorted, a panel each for at most 12 evenly spaced blocks, with their intervals."""
    by_model = {
        one.label + (', after the plug' if 'after' in value else ''): estimate
        for one in shown
        for value, estimate in one.estimates.items()
        if estimate.mean.ndim == 2 and 'left out' not in value
    }
    if not by_model:
        return None
    deepest = max(by_model.values(), key=lambda estimate: len(estimate.mean))
    blocks = some([block for block, heads in enumerate(deepest.mean) if np.isfinite(heads).any()])
    figure, axes = panels(len(blocks), _title(measure), columns=4, inches=(2.6, 2.2))
    for ax, block in zip(axes, blocks, strict=True):
        for number, (label, estimate) in enumerate(by_model.items()):
            if block < len(estimate.mean):
                _heads(ax, label, number, estimate, block)
        ax.set_title(f'block {block}', fontsize=9)
        ax.set_xlabel('heads, sorted', fontsize=8)
        ax.set_ylabel(measure.unit, fontsize=8)
        ax.set_ylim(0, 1.1 * ax.dataLim.ymax)
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, axes)
    return figure


def _heads(ax: Axes, label: str, number: int, estimate: Estimate, block: int) -> None:
    order = np.argsort(estimate.mean[block])[: np.isfinite(estimate.mean[block]).sum()]
    mean, low, high = (array[block][order] for array in (estimate.mean, estimate.low, estimate.high))
    reach = np.nan_to_num(np.stack((mean - low, high - mean)))
    ax.errorbar(range(1, len(mean) + 1), mean, reach, label=label, markersize=4, capsize=2, **style(number))


def matrices(measure, shown: Sequence[Shown]) -> Figure | None:
    """Matrices of blocks with one scale from 0 to 1, a panel for each model."""
    found = {
        ', '.join(filter(None, (one.label, value.removeprefix('between blocks').strip()))): estimate.mean
        for one in shown
        for value, estimate in one.estimates.items()
        if estimate.mean.ndim == 2
    }
    if not found:
        return None
    figure, axes = panels(len(found), _title(measure), inches=(3.6, 3.2))
    for ax, (name, matrix) in zip(axes, found.items(), strict=True):
        picture = ax.imshow(np.ma.masked_invalid(matrix), cmap=MATRIX, vmin=0, vmax=1, origin='lower')
        ax.set_title(textwrap.fill(name, 40), fontsize=9)
        ax.set_ylabel('block')
        ax.set_xlabel('block')
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))
    figure.colorbar(picture, ax=axes, shrink=0.85)
    return figure


def heat(measure, shown: Sequence[Shown]) -> Figure | None:
    """Images of the first model, each beside the heat maps of all models laid over it."""
    columns = [
        (one, name)
        for one in shown
        for name in dict.fromkeys(name for unit in one.units for name in unit)
        if name not in ('picture', 'target')
    ]
    if not shown or not shown[0].units:
        return None
    rows, names = len(shown[0].units), ['image', *(', '.join(filter(None, (one.label, name))) for one, name in columns)]
    figure = Figure(figsize=(max(2.1 * len(names), 4), 2.35 * rows + 0.6), layout='constrained')
    figure.suptitle(_title(measure), fontsize=11)
    axes = figure.subplots(rows, len(names), squeeze=False)
    for at, line in enumerate(axes):
        picture = shown[0].units[at]['picture']
        line[0].imshow(picture)
        for ax, (one, name) in zip(line[1:], columns, strict=True):
            unit = one.units[at]
            ax.set_xlabel(textwrap.fill(str(unit.get('target', '')), 34), fontsize=7)
            ax.imshow(unit['picture'].mean(-1), cmap='gray', vmin=0, vmax=255)
            if name in unit:
                ax.imshow(unit[name], cmap=HEAT, alpha=0.6)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(textwrap.fill(name, 24), fontsize=8)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def receptive_fields(measure, shown: Sequence[Shown]) -> Figure | None:
    """Maps of gradients in pixels, a panel each, with ellipses at one and two sigmas of the Gaussian fitted to each."""
    found = [one for one in shown if one.units]
    if not found:
        return None
    figure, axes = panels(len(found), _title(measure), inches=(3.6, 4.0))
    for ax, one in zip(axes, found, strict=True):
        field = mean_field([unit['field'] for unit in one.units])
        fit = fit_gaussian(field)
        # The square root shows the tails beside the peak.
        ax.imshow(np.sqrt(field / max(field.max(), np.finfo(field.dtype).tiny)), cmap=HEAT, vmin=0, vmax=1)
        outline(ax, fit)
        noise = ' (untrained: rounding noise)' if one.units[0]['is noise'] else ''
        ax.set_title(textwrap.fill(f'{one.label}{noise}: {fit_text(fit)}', 42), fontsize=9)
        ax.set_xlabel('pixels; square root of the gradient', fontsize=8)
    return figure


def fit_text(fit: GaussianFit) -> str:
    """A fit in the title of a panel."""
    if not fit.converged:
        return 'no fit'
    return f'sigma {fit.sigma_x:.2g} x {fit.sigma_y:.2g}, R² {fit.r_squared:.2f}' + (' (doubtful)' if fit.doubt else '')


def outline(ax: Axes, fit: GaussianFit) -> None:
    """Ellipses at one and two sigmas of a Gaussian over an image, cut off at its edges; nothing if the fit failed."""
    limits = dict(xlim=ax.get_xlim(), ylim=ax.get_ylim())
    for sigmas, line in ((1, '-'), (2, '--')) if fit.converged else ():
        sides = 2 * sigmas * fit.sigma_x, 2 * sigmas * fit.sigma_y
        ax.add_patch(Ellipse((fit.x, fit.y), *sides, fill=False, color='white', linestyle=line))
    ax.set(**limits)


def biases(measure, shown: Sequence[Shown]) -> Figure | None:
    """Position biases of the central query of at most 12 evenly spaced blocks of each model."""
    found = []
    for one in shown:
        names = [name for unit in one.units for name in unit if name.startswith(SHOWN)]
        found += [(one, name) for name in some(names)]
    if not found:
        return None
    figure, axes = panels(len(found), _title(measure), columns=4, inches=(2.6, 2.7))
    for ax, (one, name) in zip(axes, found, strict=True):
        bias = one.units[0][name]
        fit = fit_gaussian(bias)
        ax.imshow(bias, cmap=HEAT)
        outline(ax, fit)
        ax.set_title(f'{textwrap.fill(one.label, 34)}\n{name.removeprefix(SHOWN)}: {fit_text(fit)}', fontsize=7)
        ax.set_xlabel('tokens', fontsize=8)
    return figure


def rows_of_maps(measure, shown: Sequence[Shown]) -> Figure | None:
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
    figure = Figure(figsize=(max(1.7 * most + 0.9, 5), 1.9 * len(rows) + 0.5), layout='constrained')
    figure.suptitle(_title(measure), fontsize=11)
    axes = figure.subplots(len(rows), most, squeeze=False)
    limits = dict(vmin=-1, vmax=1) if measure.unit == 'cosine' else {}
    for line, (row, maps_of) in zip(axes, rows.items(), strict=True):
        for ax, (name, values) in zip(line, maps_of.items(), strict=False):
            ax.imshow(values, cmap=MATRIX if limits else HEAT, **limits)
            ax.set_title(name.replace(' (', '\n('), fontsize=8)
        for ax in line[len(maps_of) :]:
            ax.set_axis_off()
        line[0].set_ylabel(textwrap.fill(row, 22), fontsize=8)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def strips(measure, shown: Sequence[Shown]) -> Figure | None:
    """Matrices that are wider than high, two columns of panels with one scale."""
    found = {f'{one.label}, image {n}': unit[''] for one in shown for n, unit in enumerate(one.units) if '' in unit}
    if not found:
        return None
    figure, axes = panels(len(found), _title(measure), columns=2, inches=(5.2, 1.7))
    low, high = min(float(m.min()) for m in found.values()), max(float(m.max()) for m in found.values())
    for ax, (name, matrix) in zip(axes, found.items(), strict=True):
        picture = ax.imshow(matrix, cmap=MATRIX, vmin=low, vmax=high, aspect='auto', interpolation='nearest')
        ax.set_title(name, fontsize=9)
        ax.set_xlabel('token', fontsize=8)
        ax.set_ylabel('block', fontsize=8)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))
    figure.colorbar(picture, ax=axes, shrink=0.85)
    return figure


def some(items: Sequence) -> list:
    """At most 12 of some things, evenly spaced, the first and the last among them."""
    return [items[index] for index in evenly_spaced(len(items), MOST_PANELS)]
