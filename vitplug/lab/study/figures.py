"""Pictures of a study: curves over depth or strength from its rows, grids of images and maps from what images gave."""

import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from vitplug.statistics.images import Arrays, evenly_spaced

from .conditions import Condition
from .engine import Study
from .gaussian_fit import GaussianFit, fit_gaussian
from .measure import SHOWN, Measure
from .measures.fields import mean_field
from .rows import VALUE, Row

FORMATS = ('png', 'pdf')
# Okabe and Ito: apart for colour-blind people, and, with the markers, in grey print.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS, LINES = 'osv^DP*', ('-', '--', '-.', ':')
# Light to dark without hue jumps.
HEAT, MATRIX = 'magma', 'viridis'
MOST_PANELS = 12
# Letters of a title in an inch.
LETTERS = 11
# The name of the mean of heads.
MEAN = ', mean of heads'

#: What each image gave, by model, and by condition where there are several.
Shown = Mapping[str, Sequence[Arrays]]


def figures_of(study: Study, measure: Measure, rows: Sequence[Row]) -> dict[str, Figure]:
    """The pictures of a measure by name: over depth or of its maps, and over the strength of conditions."""
    found = [(run.label, condition.name, units) for run, condition, units in study.found(measure)]
    form = '{}, {}' if len({condition for _, condition, _ in found}) > 1 else '{}'
    shown: dict[str, Sequence[Arrays]] = {}
    for label, condition, units in found:
        shown.setdefault(form.format(label, condition), units)
    rows = [row for row in rows if row.quantity == VALUE]
    named = [row._replace(model=form.format(row.model, row.condition)) for row in rows]
    drawn = _over_depth(measure, named) if measure.draw == 'over_depth' else MAPS[measure.draw](measure, named, shown)
    both = {measure.name: drawn, f'{measure.name}_over_strength': _over_strength(measure, rows, study.conditions)}
    return {name: figure for name, figure in both.items() if figure is not None}


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


def _label(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(x, fontsize=8)
    ax.set_ylabel(y, fontsize=8)


# --- curves ---


def _over_depth(measure: Measure, rows: Sequence[Row]) -> Figure | None:
    """Values over the blocks, a panel each: means with bands of their intervals, heads as dots."""
    titles = {row.value.removesuffix(MEAN) for row in rows if row.layer != '' and row.head == ''}
    points = [((row.value.removesuffix(MEAN), 'block'), row.layer, row) for row in rows if row.layer != '']
    return _curves(measure, [point for point in points if point[0][0] in titles])


def _over_strength(measure: Measure, rows: Sequence[Row], conditions: Sequence[Condition]) -> Figure | None:
    """Scores over the strength of conditions, a panel for each family with several."""
    known, strengths = {one.name: one for one in conditions if one.family}, defaultdict(set)
    for one in known.values():
        strengths[one.family, one.unit].add(one.strength)
    whole = [row for row in rows if row.layer == '' and row.condition in known and row.value == rows[0].value]
    points = [((one.family, one.unit), one.strength, row) for row in whole for one in [known[row.condition]]]
    return _curves(measure, [point for point in points if len(strengths[point[0]]) > 1])


def _curves(measure: Measure, points: Sequence[tuple[tuple[str, str], float, Row]]) -> Figure | None:
    """Panels of lines over ``x``, one for each model; points are title and label of ``x``, ``x``, and number."""
    if not points:
        return None
    models = list(dict.fromkeys(row.model for *_, row in points))
    panels = list(dict.fromkeys(panel for panel, *_ in points))
    figure, axes = _panels(len(panels), measure)
    for ax, (title, label) in zip(axes, panels, strict=True):
        for number, model in enumerate(models):
            own = [(x, row) for panel, x, row in points if panel == (title, label) and row.model == model]
            heads = [(x, row.mean) for x, row in own if row.head != '']
            line = sorted((x, row.mean, row.low, row.high) for x, row in own if row.head == '')
            colour = dict(color=COLOURS[number % len(COLOURS)])
            style = dict(marker=MARKERS[number % len(MARKERS)], markersize=5, linestyle=LINES[number % len(LINES)])
            if heads:
                ax.plot(*zip(*heads, strict=True), '.', alpha=0.35, markersize=4, **colour)
            if line:
                x, mean, low, high = zip(*line, strict=True)
                ax.fill_between(x, low, high, alpha=0.2, linewidth=0, **colour)
                ax.plot(x, mean, label=model, **style, **colour)
        _label(ax, title, label, measure.unit)
        ax.locator_params('x', integer=label == 'block')
        ax.grid(alpha=0.3)
    if len(models) > 1:
        lines = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        columns = max(1, int(figure.get_figwidth() * LETTERS / (max(map(len, models)) + 6)))
        figure.legend(lines.values(), lines, loc='outside lower center', ncols=columns, frameon=False, fontsize=8)
    return figure


# --- maps ---


class Panel(NamedTuple):
    """Pictures over each other, each with its settings; and labels and the Gaussian that was fitted."""

    pictures: Sequence[tuple[np.ndarray, dict[str, Any]]] = ()
    title: str = ''
    x: str = ''
    y: str = ''
    fit: GaussianFit | None = None


def _grid(measure: Measure, panels: Sequence[Panel], columns: int, inches: tuple[float, float]) -> Figure | None:
    """Panels in rows; those without pictures are empty, a Gaussian is ellipses at one and two sigmas."""
    if not panels:
        return None
    figure, axes = _panels(len(panels), measure, columns, inches)
    for ax, panel in zip(axes, panels, strict=True):
        for picture, settings in panel.pictures:
            ax.imshow(picture, **settings)
        _label(ax, textwrap.fill(panel.title, int(13 * inches[0])), textwrap.fill(panel.x, 34), panel.y)
        ax.locator_params(integer=True)
        ax.autoscale(False)
        for sigmas, line in ((1, '-'), (2, '--')) if panel.fit and panel.fit.converged else ():
            sides = 2 * sigmas * panel.fit.sigma_x, 2 * sigmas * panel.fit.sigma_y
            ax.add_patch(Ellipse((panel.fit.x, panel.fit.y), *sides, fill=False, color='white', linestyle=line))
        if not panel.pictures:
            ax.set_axis_off()
    return figure


def _matrices(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """Similarities of blocks from 0 to 1, a panel for each model."""
    found: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for row in rows:
        if row.head != '':
            found[row.model][row.layer, row.head] = row.mean
    panels, settings = [], dict(cmap=MATRIX, vmin=0, vmax=1, origin='lower')
    for model, numbers in found.items():
        matrix = np.full((max(map(max, numbers)) + 1,) * 2, np.nan)
        matrix[tuple(zip(*numbers, strict=True))] = list(numbers.values())
        panels.append(Panel([(matrix, settings)], model, 'block', 'block'))
    if figure := _grid(measure, panels, 3, (3.6, 3.2)):
        figure.colorbar(figure.axes[0].images[0], ax=figure.axes, shrink=0.85)
    return figure


def _fitted(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """The mean field of each model in pixels, or maps of at most 12 evenly spaced blocks, with fitted Gaussians."""
    panels = []
    for label, units in shown.items():
        names = [name for name in units[0] if name.startswith(SHOWN)]
        maps = {f'{label}, {name.removeprefix(SHOWN)}': units[0][name] for name in names}
        show, x = np.asarray, 'tokens'
        if 'field' in units[0]:  # the square root shows the tails beside the peak
            show, x = np.sqrt, 'pixels; square root of the gradient'
            noise = ' (untrained: rounding noise)' if units[0]['is noise'] else ''
            maps = {f'{label}{noise}': mean_field([unit['field'] for unit in units])}
        for title, values in [list(maps.items())[at] for at in evenly_spaced(len(maps), MOST_PANELS)]:
            fit = fit_gaussian(values)
            panels.append(Panel([(show(values), dict(cmap=HEAT))], f'{title}: {fit}', x, fit=fit))
    return _grid(measure, panels, 4, (3.2, 3.7))


def _images(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """Maps of all models beside each image; of a single image a row for each model, and for arrays ``ROW|COLUMN``.

    Each map has a scale of its own; maps of an image's size lie over it in grey; ``target`` is told below.
    """
    lines: dict[object, list[Panel]] = defaultdict(list)
    several = any(len(units) > 1 for units in shown.values())
    for label, at, unit in ((label, at, unit) for label, units in shown.items() for at, unit in enumerate(units)):
        picture, target = unit.get('picture', np.zeros(0)), str(unit.get('target', ''))
        for name, values in unit.items():
            row, _, column = name.rpartition('|')
            model = ', '.join(filter(None, (label, row)))
            line = lines[at if several else model]
            if name == 'picture' and not (several and line):
                line.append(Panel([(values, {})], '' if at else 'image', y='' if several else textwrap.fill(model, 22)))
            elif name not in ('picture', 'target'):
                title = ', '.join(filter(None, (label, column))) if several else column
                y = '' if several or line else textwrap.fill(model, 22)
                line.append(Panel(_layers(measure, values, picture), '' if several and at else title, target, y))
    most = max(map(len, lines.values()), default=0)
    panels = [panel for line in lines.values() for panel in (*line, *[Panel()] * (most - len(line)))]
    figure = _grid(measure, panels, most, (max(1.9, 5 / max(most, 1)), 2.2))
    for ax in figure.axes if figure else ():
        ax.set(xticks=[], yticks=[])
    return figure


def _layers(measure: Measure, values: np.ndarray, picture: np.ndarray) -> list[tuple[np.ndarray, dict]]:
    """A map over a picture of its size, or alone."""
    scale = dict(cmap=MATRIX, vmin=-1, vmax=1) if measure.unit == 'cosine' else dict(cmap=HEAT)
    if values.shape == picture.shape[:2]:
        return [(picture.mean(-1), dict(cmap='gray', vmin=0, vmax=255)), (values, scale | dict(alpha=0.6))]
    return [(values, scale | dict(aspect='auto' if values.shape[1] > 4 * values.shape[0] else 'equal'))]


#: By the name that a measure gives as :attr:`~.measure.Measure.draw`.
MAPS: Mapping[str, Callable[[Measure, Sequence[Row], Shown], Figure | None]] = dict(
    matrices=_matrices, receptive_fields=_fitted, biases=_fitted, heat=_images, rows_of_maps=_images
)
