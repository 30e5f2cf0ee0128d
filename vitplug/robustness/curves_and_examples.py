"""Pictures: scores against strength, as in ReViT's Figure 6, and an image under the conditions."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitplug.analysis.study import drawing

from .columns import Column
from .conditions import CLEAN, Condition
from .results import SCORE, Number
from .run import data_of
from .suites import SUITES, Options, title_of

# Okabe and Ito's colours.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#000000', '#56B4E9')
MARKERS = ('o', 's', '^', 'D', 'v', 'P')
# Families whose strength 0 is not the clean image.
OWN_SCALE = ('calibrated field',)


def curves(
    suite: str, value: str, numbers: Sequence[Number], columns: Sequence[Column], options: Options
) -> Figure | None:
    """Scores over the strength of each kind of change, a panel each, with bands of their intervals; None for none."""
    drawn = [n for n in numbers if (n.suite, n.value, n.quantity) == (suite, value, SCORE)]
    families = dict.fromkeys(n.condition.family for n in drawn if n.condition.family)
    families = [
        name for name in families if len({n.condition.strength for n in drawn if n.condition.family == name}) > 1
    ]
    if not families:
        return None
    figure, axes = drawing.panels(len(families), title_of(suite, options), columns=4, inches=(3.1, 2.6))
    for ax, family in zip(axes, families, strict=True):
        shown = [n for n in drawn if n.condition.family == family or (n.condition == CLEAN and family not in OWN_SCALE)]
        for column, colour, marker in zip(columns, cycle(COLOURS), cycle(MARKERS)):
            _line(ax, [n for n in shown if n.model == column.label], column.label, colour, marker)
        ax.set_title(family, fontsize=9)
        ax.set_xlabel(next(n.condition.unit for n in shown if n.condition.unit), fontsize=8)
        ax.set_ylabel(value)
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
    drawing.legend(figure, axes)
    return figure


def _line(ax: Axes, numbers: Sequence[Number], label: str, colour: str, marker: str) -> None:
    numbers = sorted(numbers, key=lambda number: number.condition.strength)
    strengths = [number.condition.strength for number in numbers]
    low, mean, high = (np.array([getattr(n.estimate, end) for n in numbers]) for end in ('low', 'mean', 'high'))
    ax.fill_between(strengths, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(strengths, mean, label=label, color=colour, marker=marker, markersize=5)


def examples(column: Column, suites: Mapping[str, Sequence[Condition]], image: int, seed: int) -> Figure | None:
    """An image as a model gets it under some conditions of each suite, a row each; None if no suite changes images."""
    rows = {}
    for name, conditions in suites.items():
        changed = drawing.some([one for one in conditions if one.edit and not one.folder])
        if name in SUITES and changed:
            pictures = {one.name: _picture(column, one, image, seed) for one in [CLEAN, *changed]}
            rows[SUITES[name].title] = pictures
    if not rows:
        return None
    return drawing.map_rows(f'An image as {column.label} gets it', rows, own_scale=True, limits=(0, 255))


def _picture(column: Column, condition: Condition, image: int, seed: int) -> np.ndarray:
    """The image ``(H, W, 3)``, red first."""
    pixels = np.asarray(data_of(column, condition, seed)[image]['inputs']).transpose(1, 2, 0)
    pixels = pixels.round().clip(0, 255).astype(np.uint8)
    if pixels.shape[-1] == 1:
        return pixels.repeat(3, axis=-1)
    return pixels[..., ::-1] if column.turns_channels else pixels


def write(
    folder: Path,
    numbers: Sequence[Number],
    suites: Mapping[str, Sequence[Condition]],
    columns: Sequence[Column],
    options: Options,
    images: Sequence[int],
    seed: int,
    picture_format: str,
) -> list[Path]:
    """Writes all pictures, each as a whole.

    Returns:
        Their paths.

    Raises:
        OSError: If one cannot be written.
    """
    drawn = {'examples': examples(columns[0], suites, images[0], seed)}
    for suite, value in dict.fromkeys((number.suite, number.value) for number in numbers):
        drawn[f'{suite}.{value.replace(" ", "_")}'] = curves(suite, value, numbers, columns, options)
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            paths.append(folder / f'{name}.{picture_format}')
            drawing.save(figure, paths[-1])
    return paths
