"""Pictures of a study: curves over depth or strength from its rows, grids of images and maps from what images gave."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from vitplug.statistics.images import Arrays, evenly_spaced

from .conditions import Condition
from .engine import Study
from .measure import SHOWN, Measure
from .measures.fields import fit_gaussian, mean_field
from .rows import VALUE, Row

# Okabe and Ito: apart for colour-blind people, and, with the markers, in grey print.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
LINES = 'o-', 's--', 'v-.', '^:', 'D-', 'P--', '*-.', 'X:'
# Light to dark without hue jumps.
HEAT, MATRIX = 'magma', 'viridis'
# What is counted, as labels of axes.
BLOCK, STEP = 'block', 'epoch or iteration'
# Letters of a title in an inch.
LETTERS = 11
# The name of the mean of heads.
MEAN = ', mean of heads'

#: What each image gave, by model, and by condition where there are several.
Shown = Mapping[str, Sequence[Arrays]]


def figures_of(study: Study, measure: Measure, rows: Sequence[Row]) -> dict[str, Figure]:
    """The pictures of a measure by name: over depth or of its maps, and over the strength of conditions."""
    found = [(run.label, condition.name, units) for run, condition, units in study.found[measure]]
    form = '{}, {}' if len({condition for _, condition, _ in found}) > 1 else '{}'
    shown: dict[str, Sequence[Arrays]] = {}
    for label, condition, units in found:
        shown.setdefault(form.format(label, condition), units)
    rows = [row for row in rows if row.quantity == VALUE]
    named = [row._replace(model=form.format(row.model, row.condition)) for row in rows]
    drawn = KINDS[measure.draw](measure, named, shown)
    both = {measure.name: drawn, f'{measure.name}_over_strength': _over_strength(measure, rows, study.conditions)}
    return {name: figure for name, figure in both.items() if figure is not None}


def _panels(count: int, title: str, columns: int = 3, sides: Sequence[float] = (3.6, 2.8)) -> tuple[Figure, list[Axes]]:
    """A figure with a title and some panels in rows, each of so many inches."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(sides[0] * columns, sides[1] * rows + 0.45), layout='constrained')
    figure.suptitle(textwrap.fill(title, int(LETTERS * sides[0] * columns)), fontsize=11)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def _title(measure: Measure) -> str:
    return f'{measure.name.replace("_", " ")} ({measure.source})' if measure.source else measure.name


def _label(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(x, fontsize=8)
    ax.set_ylabel(y, fontsize=8)


# --- curves ---


def _over_depth(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """Values over the blocks, a panel each: means with bands of their intervals, heads as dots."""
    titles = {row.value.removesuffix(MEAN) for row in rows if row.layer != '' and row.head == ''}
    points = [((row.value.removesuffix(MEAN), BLOCK), row.layer, row) for row in rows if row.layer != '']
    return curves(_title(measure), measure.unit, [point for point in points if point[0][0] in titles])


def _over_strength(measure: Measure, rows: Sequence[Row], conditions: Sequence[Condition]) -> Figure | None:
    """Scores over the strength of conditions, a panel for each family with several."""
    known = {one.name: one for one in conditions if one.family}
    whole = [(known[row.condition], row) for row in rows if row.layer == '' and row.condition in known]
    points = [((one.family, one.unit), one.strength, row) for one, row in whole if row.value == rows[0].value]
    strengths = Counter(panel for panel, _ in {(panel, strength) for panel, strength, _ in points})
    return curves(_title(measure), measure.unit, [point for point in points if strengths[point[0]] > 1])


def curves(name: str, unit: str, points: Sequence[tuple[tuple[str, str], float, Row]]) -> Figure | None:
    """Panels of lines over ``x``, one for each model; points are title and label of ``x``, ``x``, and number."""
    if not points:
        return None
    models = list(dict.fromkeys(row.model for *_, row in points))
    panels = list(dict.fromkeys(panel for panel, *_ in points))
    figure, axes = _panels(len(panels), name)
    for ax, (title, label) in zip(axes, panels, strict=True):
        for number, model in enumerate(models):
            own = [(x, row) for panel, x, row in points if panel == (title, label) and row.model == model]
            heads = [(x, row.mean) for x, row in own if row.head != '']
            line = sorted((x, row.mean, row.low, row.high) for x, row in own if row.head == '')
            colour, style = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
            if heads:
                ax.plot(*zip(*heads, strict=True), '.', alpha=0.35, markersize=4, color=colour)
            if line:
                x, mean, low, high = zip(*line, strict=True)
                ax.fill_between(x, low, high, alpha=0.2, linewidth=0, color=colour)
                ax.plot(x, mean, style, label=model, markersize=5, color=colour)
        _label(ax, title, label, unit)
        ax.locator_params('x', integer=label in (BLOCK, STEP))
        ax.grid(alpha=0.3)
    if len(models) > 1:
        lines = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        columns = max(1, int(figure.get_figwidth() * LETTERS / (max(map(len, models)) + 6)))
        figure.legend(lines.values(), lines, loc='outside lower center', ncols=columns, frameon=False, fontsize=8)
    return figure


# --- maps ---


def _matrices(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """Similarities of blocks from 0 to 1, a panel for each model."""
    found: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for row in rows:
        if row.head != '':
            found[row.model][row.layer, row.head] = row.mean
    if not found:
        return None
    figure, axes = _panels(len(found), _title(measure), sides=(3.6, 3.2))
    for ax, (model, numbers) in zip(axes, found.items(), strict=True):
        matrix = np.full((max(map(max, numbers)) + 1,) * 2, np.nan)
        matrix[tuple(zip(*numbers, strict=True))] = list(numbers.values())
        drawn = ax.imshow(matrix, cmap=MATRIX, vmin=0, vmax=1, origin='lower')
        _label(ax, model, BLOCK, BLOCK)
        ax.locator_params(integer=True)
    figure.colorbar(drawn, ax=axes, shrink=0.85)
    return figure


def _images(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """A row for each model, and for arrays ``ROW|COLUMN``: images, and their maps beside them.

    Each map has a scale of its own; maps of an image's size lie over it in grey; ``target`` is told below. A Gaussian
    is ellipses at one and two sigmas.
    """
    lines: dict[str, list[tuple[str, np.ndarray, Arrays]]] = defaultdict(list)
    for label, unit in ((label, unit) for label, units in shown.items() for unit in units):
        for name in (name for name in unit if name != 'target'):
            row, _, column = name.rpartition('|')
            lines[', '.join(filter(None, (label, row)))].append((column, unit[name], unit))
    most = max(map(len, lines.values()), default=0)
    if not most:
        return None
    inches = max(1.9, 5 / most)
    figure, axes = _panels(len(lines) * most, _title(measure), most, (inches, 2.2))
    for number, (model, line) in enumerate(lines.items()):
        own = axes[number * most : (number + 1) * most]
        for ax, (title, values, unit) in zip(own, line, strict=False):
            fit = _show(ax, measure, values, unit.get('picture', np.zeros(0)))
            below = textwrap.fill(fit or str(unit.get('target', '')), 34)
            _label(ax, textwrap.fill(title, int(13 * inches)), below, '')
            ax.set(xticks=[], yticks=[])
        own[0].set_ylabel(textwrap.fill(model, 22), fontsize=8)
        for ax in own[len(line) :]:
            ax.set_axis_off()
    return figure


def _show(ax: Axes, measure: Measure, values: np.ndarray, picture: np.ndarray) -> str:
    """Draws a picture, a map over a picture of its size or alone, or a map with the Gaussian that it tells of."""
    if values.ndim == 3:
        ax.imshow(values)
        return ''
    if measure.draw == 'fitted':
        ax.imshow(values, cmap=HEAT, norm=PowerNorm(0.5))  # shows the tails beside the peak
        ax.autoscale(False)
        fit = fit_gaussian(values)
        if np.isnan(fit['R²']):
            return 'no fit'
        for sigmas, line in ((1, '-'), (2, '--')):
            sides = (2 * sigmas * fit[f'sigma {axis}'] for axis in 'xy')
            centre = fit['centre x'], fit['centre y']
            ax.add_patch(Ellipse(centre, *sides, fill=False, color='white', linestyle=line))
        return f'sigma {fit["sigma x"]:.2g} x {fit["sigma y"]:.2g}, R² {fit["R²"]:.2f}'
    scale = dict(cmap=MATRIX, vmin=-1, vmax=1) if measure.unit == 'cosine' else dict(cmap=HEAT)
    if values.shape == picture.shape[:2]:
        ax.imshow(picture.mean(-1), cmap='gray', vmin=0, vmax=255)
        ax.imshow(values, **scale, alpha=0.6)
    else:
        ax.imshow(values, **scale, aspect='auto' if values.shape[1] > 4 * values.shape[0] else 'equal')
    return ''


def _fitted(measure: Measure, rows: Sequence[Row], shown: Shown) -> Figure | None:
    """The mean field of each model, or maps of at most 12 evenly spaced blocks, with fitted Gaussians."""
    maps: dict[str, list[Arrays]] = {}
    for label, units in shown.items():
        if 'field' in units[0]:
            noise = 'untrained: rounding noise' if units[0]['is noise'] else ''
            maps[label] = [{noise: mean_field([unit['field'] for unit in units])}]
        else:
            names = [name for name in units[0] if name.startswith(SHOWN)]
            chosen = [names[at] for at in evenly_spaced(len(names), 12)]
            maps[label] = [{name.removeprefix(SHOWN): units[0][name] for name in chosen}]
    return _images(measure, rows, maps)


#: By the name that a measure gives as :attr:`~.measure.Measure.draw`.
KINDS: Mapping[str, Callable[[Measure, Sequence[Row], Shown], Figure | None]] = dict(
    depth=_over_depth, matrix=_matrices, maps=_images, fitted=_fitted
)
