"""Pictures of probes: the value of each seed, and predictions on test images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .run import PICTURE, Subject

if TYPE_CHECKING:
    from .results import Results

# Okabe and Ito's colours, apart for colour-blind people.
RIGHT, WRONG = '#009E73', '#D55E00'
DOT = '#0072B2'
TAB = 20  # colours of matplotlib's tab20


def draw_values(results: 'Results') -> Figure:
    """A row for each model: a dot for each seed, and a line at the mean."""
    figure = Figure(figsize=(6.4, 1.0 + 0.45 * len(results.rows)), layout='constrained')
    ax = figure.subplots()
    for height, row in enumerate(results.rows):
        values = [*row.values[results.main].values()]
        ax.plot(values, [height] * len(values), 'o', color=DOT, alpha=0.6, markersize=5)
        ax.plot([np.mean(values)] * 2, [height - 0.3, height + 0.3], '-', color='black', linewidth=1.5)
    ax.set_yticks(range(len(results.rows)), [row.label for row in results.rows])
    ax.set_ylim(len(results.rows) - 0.5, -0.5)
    ax.set_xlabel(f'{results.main}, percent; a dot for each seed')
    ax.grid(axis='x', alpha=0.3)
    ax.spines[['top', 'right']].set_visible(False)
    return figure


def draw_predictions(results: 'Results', subject: Subject, names: Sequence[str]) -> Figure:
    """Test images in columns: image, truth, and the prediction of each model with the first seed.

    Args:
        results: The results.
        subject: The model whose pipeline reads the images.
        names: Names of the classes.
    """
    first = min(results.rows[0].cells)
    cells = [(row.label, row.cells[first]) for row in results.rows]
    shown = sorted(int(name.partition(' ')[2]) for name in cells[0][1] if name.startswith(f'{PICTURE} '))
    tests = subject.images['test']
    items = {index: tests[index] for index in shown}
    images = [tests.picture(index, item['inputs']) for index, item in items.items()]
    truths = [subject.kind.label(item['data_samples'], subject.classes) for item in items.values()]
    predictions = [(label, [cell[f'{PICTURE} {index}'] for index in shown]) for label, cell in cells]
    if subject.kind.dense:
        return _draw_maps(images, truths, predictions, names, _palette(subject, len(names)))
    return _draw_classes(images, truths, predictions, names)


def _draw_classes(images: Sequence, truths: Sequence, predictions: Sequence, names: Sequence[str]) -> Figure:
    figure = Figure(figsize=(1.9 * len(images), 2.3 + 0.2 * len(predictions)), layout='constrained')
    for column, ax in enumerate(figure.subplots(1, len(images), squeeze=False)[0]):
        _show(ax, images[column], names[int(truths[column])])
        for line, (label, predicted) in enumerate(predictions):
            right = int(predicted[column]) == int(truths[column])
            text = f'{label}: {names[int(predicted[column])]}'
            ax.text(
                0.0, -0.06 - 0.11 * line, text, transform=ax.transAxes, fontsize=8, va='top',
                color=RIGHT if right else WRONG, weight='normal' if right else 'bold',
            )  # fmt: skip
    return figure


def _draw_maps(
    images: Sequence, truths: Sequence, predictions: Sequence, names: Sequence[str], palette: np.ndarray
) -> Figure:
    rows = [('image', None), ('truth', truths), *predictions]
    height = images[0].shape[0] / images[0].shape[1]
    figure = Figure(figsize=(2.2 * len(images) + 0.4, 2.2 * height * len(rows) + 0.9), layout='constrained')
    axes = figure.subplots(len(rows), len(images), squeeze=False)
    for line, (label, maps) in enumerate(rows):
        for column, ax in enumerate(axes[line]):
            picture = images[column] if maps is None else _painted(np.asarray(maps[column]), palette)
            _show(ax, picture, '')
        axes[line][0].set_ylabel(label, fontsize=9)
    seen = sorted({int(label) for truth in truths for label in np.unique(truth) if label < len(names)})
    handles = [Patch(color=palette[label] / 255, label=names[label]) for label in seen]
    figure.legend(handles=handles, loc='outside lower center', ncols=6, fontsize=8, frameon=False)
    return figure


def _painted(labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """A label map in colours; void is white."""
    white = np.array([[255, 255, 255]])
    return np.concatenate([palette, white]).astype(np.uint8)[np.where(labels < len(palette), labels, len(palette))]


def _show(ax: Axes, picture: np.ndarray, title: str) -> None:
    ax.imshow(picture)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=9)


def _palette(subject: Subject, count: int) -> np.ndarray:
    """Colours of the classes, ``(C, 3)``, of the data set or of matplotlib."""
    palette = subject.images['test'].metainfo.get('palette')
    if palette is not None and len(palette) >= count:
        return np.array(palette)[:count]
    return np.array([255 * np.array(colormaps['tab20'](index % TAB)[:3]) for index in range(count)]).round()
