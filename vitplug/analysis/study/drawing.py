"""Pictures of measures: lines over depth, heads by block, matrices of blocks, and heat over images."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from vitplug.analysis.measures.gaussian_fit import GaussianFit
from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.images import Estimate, evenly_spaced

DPI = 110
FORMATS = ('png', 'pdf')
# Okabe and Ito's blue and vermilion: apart for colour-blind people, and, with the markers, in grey print.
STYLES = {
    'model': dict(color='#0072B2', marker='o', linestyle='-'),
    'baseline': dict(color='#D55E00', marker='s', linestyle='--'),
    'baseline, control': dict(color='#CC79A7', marker='v', linestyle='-.'),
}
OTHER = dict(color='#000000', marker='^', linestyle=':')
# Light to dark without hue jumps.
HEAT, MATRIX = 'magma', 'viridis'
MOST_PANELS = 12
MOST_TICKS = 13
# Letters of a title in an inch.
LETTERS = 11

#: Estimates by model, then by value.
ByModel = Mapping[str, Mapping[str, Estimate]]


def save(figure: Figure, path: Path) -> None:
    """Writes a picture in the format of its suffix, as a whole or not at all; the same picture gives the same file."""
    content, suffix = io.BytesIO(), path.suffix[1:]
    figure.savefig(content, format=suffix, dpi=DPI, metadata={'CreationDate': None} if suffix == 'pdf' else None)
    AtomicBackend().put(content.getvalue(), path)


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


def style_of(label: str) -> dict:
    """Colour, marker and line of a model."""
    return dict(STYLES.get(label, OTHER))


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, where there is more than one model."""
    lines = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    if len(lines) > 1:
        figure.legend(lines.values(), lines, loc='outside lower center', ncols=len(lines), frameon=False, fontsize=9)


def over_depth(title: str, unit: str, values: Mapping[str, ByModel]) -> Figure:
    """Values over the blocks, a panel each: means with bands of their intervals.

    Args:
        title: Title of the figure.
        unit: Label of the vertical axes.
        values: By value, the estimates ``(blocks,)`` of each model under ``'mean'``, and those of heads
            ``(blocks, heads)`` under ``'heads'`` where there are any: drawn as small dots.
    """
    figure, axes = panels(len(values), title)
    for ax, (name, by_model) in zip(axes, values.items(), strict=True):
        for label, curves in by_model.items():
            _line(ax, label, curves['mean'], curves.get('heads'))
        ax.set_title(name, fontsize=9)
        ax.set_xlabel('block')
        ax.set_ylabel(unit)
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, axes)
    return figure


def _line(ax: Axes, label: str, mean: Estimate, heads: Estimate | None) -> None:
    style = style_of(label)
    blocks = np.flatnonzero(np.isfinite(mean.mean))
    if heads is not None:
        for head in heads.mean.T:
            ax.plot(range(len(head)), head, '.', color=style['color'], alpha=0.35, markersize=4)
    ax.fill_between(blocks, mean.low[blocks], mean.high[blocks], color=style['color'], alpha=0.2, linewidth=0)
    ax.plot(blocks, mean.mean[blocks], label=label, markersize=5, **style)


def sorted_heads(title: str, unit: str, by_model: Mapping[str, Estimate]) -> Figure:
    """The heads of each block, sorted, a panel each for at most 12 evenly spaced blocks, with their intervals.

    Args:
        title: Title of the figure.
        unit: Label of the vertical axes.
        by_model: Estimates ``(blocks, heads)``.
    """
    deepest = max(by_model.values(), key=lambda estimate: len(estimate.mean))
    blocks = some([block for block, heads in enumerate(deepest.mean) if np.isfinite(heads).any()])
    figure, axes = panels(len(blocks), title, columns=4, inches=(2.6, 2.2))
    for ax, block in zip(axes, blocks, strict=True):
        for label, estimate in by_model.items():
            if block < len(estimate.mean):
                _heads(ax, label, estimate, block)
        ax.set_title(f'block {block}', fontsize=9)
        ax.set_xlabel('heads, sorted', fontsize=8)
        ax.set_ylabel(unit, fontsize=8)
        ax.set_ylim(0, 1.1 * ax.dataLim.ymax)
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, axes)
    return figure


def _heads(ax: Axes, label: str, estimate: Estimate, block: int) -> None:
    order = np.argsort(estimate.mean[block])[: np.isfinite(estimate.mean[block]).sum()]
    mean, low, high = (array[block][order] for array in (estimate.mean, estimate.low, estimate.high))
    reach = np.nan_to_num(np.stack((mean - low, high - mean)))
    ax.errorbar(range(1, len(mean) + 1), mean, reach, label=label, markersize=4, capsize=2, **style_of(label))


def matrices(title: str, shown: Mapping[str, np.ndarray], axes_of: Mapping[str, tuple[str, str]], least: float = 0.0):
    """Matrices of blocks with one scale to 1, a panel each.

    Args:
        title: Title of the figure.
        shown: Matrices by the title of their panel.
        axes_of: The labels of the rows and columns, by the same.
        least: Lower end of the scale.
    """
    figure, axes = panels(len(shown), title, inches=(3.6, 3.2))
    for ax, (name, matrix) in zip(axes, shown.items(), strict=True):
        picture = ax.imshow(np.ma.masked_invalid(matrix), cmap=MATRIX, vmin=least, vmax=1, origin='lower')
        rows, columns = axes_of[name]
        ax.set_title(name, fontsize=9)
        ax.set_ylabel(rows)
        ax.set_xlabel(columns)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))
    figure.colorbar(picture, ax=axes, shrink=0.85)
    return figure


def heat_over_images(
    title: str, rows: Sequence[tuple[np.ndarray, Mapping[str, tuple[np.ndarray | None, str]]]]
) -> Figure:
    """Images, each beside heat maps laid over it.

    Args:
        title: Title of the figure.
        rows: Of each image, the picture ``(H, W, 3)`` and, by the title of the column, heat ``(H, W)``, None for none,
            and the text below it.
    """
    columns = ['image', *rows[0][1]]
    figure = Figure(figsize=(max(2.1 * len(columns), 4), 2.25 * len(rows) + 0.6), layout='constrained')
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, (picture, heats) in zip(axes, rows, strict=True):
        line[0].imshow(picture)
        for ax, (heat, below) in zip(line[1:], heats.values(), strict=True):
            ax.set_xlabel(textwrap.fill(below, 34), fontsize=7)
            ax.imshow(picture.mean(-1), cmap='gray', vmin=0, vmax=255)
            if heat is not None:
                ax.imshow(heat, cmap=HEAT, alpha=0.6)
    for ax, name in zip(axes[0], columns, strict=True):
        ax.set_title(name, fontsize=9)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def receptive_fields(title: str, fields: Mapping[str, np.ndarray], fits: Mapping[str, GaussianFit]) -> Figure:
    """Maps of gradients in pixels, a panel each, with ellipses at one and two sigmas of the Gaussian fitted to each.

    Args:
        title: Title of the figure.
        fields: Maps ``(H, W)``, by the title of their panel.
        fits: Gaussians, by the same.
    """
    figure, axes = panels(len(fields), title, inches=(3.6, 4.0))
    for ax, (name, field) in zip(axes, fields.items(), strict=True):
        # The square root shows the tails beside the peak.
        ax.imshow(np.sqrt(field / max(field.max(), np.finfo(field.dtype).tiny)), cmap=HEAT, vmin=0, vmax=1)
        fit = fits[name]
        outline(ax, fit)
        ax.set_title(f'{name}: {fit_text(fit)}', fontsize=9)
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


def maps(title: str, shown: Mapping[str, np.ndarray]) -> Figure:
    """Maps ``(h, w)``, a panel each with its own scale.

    Args:
        title: Title of the figure.
        shown: Maps by the title of their panel.
    """
    figure, axes = panels(len(shown), title, columns=4, inches=(2.4, 2.5))
    for ax, (name, values) in zip(axes, shown.items(), strict=True):
        ax.imshow(values, cmap=HEAT)
        ax.set_title(name, fontsize=8)
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def map_rows(
    title: str,
    rows: Mapping[str, Mapping[str, np.ndarray]],
    own_scale: bool = False,
    limits: tuple[float, float] | None = None,
    colours: str = HEAT,
) -> Figure:
    """Maps ``(h, w)`` in rows, a column for each name; colours of a row have one scale.

    Args:
        title: Title of the figure.
        rows: By title of the row, maps by title of the column; pictures of three channels as they are.
        own_scale: Whether each map has a scale of its own.
        limits: One scale for all, in place of those of the rows.
        colours: The colours.
    """
    most = max(map(len, rows.values()))
    figure = Figure(figsize=(1.7 * most + 0.9, 1.9 * len(rows) + 0.5), layout='constrained')
    figure.suptitle(textwrap.fill(title, int(LETTERS * (1.7 * most + 0.9))), fontsize=11)
    axes = figure.subplots(len(rows), most, squeeze=False)
    for line, (row, maps_of) in zip(axes, rows.items(), strict=True):
        low, high = limits or _range([values for values in maps_of.values() if values.ndim == 2])
        scale = {} if own_scale else dict(vmin=low, vmax=high)
        for ax, (name, values) in zip(line, maps_of.items(), strict=False):
            shown = ax.imshow(values, cmap=colours, **scale)
            ax.set_title(name.replace(' (', '\n('), fontsize=8)
        for ax in line[len(maps_of) :]:
            ax.set_axis_off()
        line[0].set_ylabel(textwrap.fill(row, 22), fontsize=8)
        if not own_scale:
            figure.colorbar(shown, ax=list(line), shrink=0.8)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def _range(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    return min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)


def strips(title: str, matrices: Mapping[str, np.ndarray], across: str, down: str) -> Figure:
    """Matrices that are wider than high, two columns of panels with one scale.

    Args:
        title: Title of the figure.
        matrices: By title of their panel.
        across: Label of the columns.
        down: Label of the rows.
    """
    figure, axes = panels(len(matrices), title, columns=2, inches=(5.2, 1.7))
    low, high = _range(list(matrices.values()))
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        picture = ax.imshow(matrix, cmap=MATRIX, vmin=low, vmax=high, aspect='auto', interpolation='nearest')
        ax.set_title(name, fontsize=9)
        ax.set_xlabel(across, fontsize=8)
        ax.set_ylabel(down, fontsize=8)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))
    figure.colorbar(picture, ax=axes, shrink=0.85)
    return figure


def some(items: Sequence) -> list:
    """At most 12 of some things, evenly spaced, the first and the last among them."""
    return [items[index] for index in evenly_spaced(len(items), MOST_PANELS)]
