"""Measures of the model alone: its position biases, and what its plugs have learned."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.gaussian_fit import PARAMETERS, centre_bias, fit_gaussian
from vitplug.analysis.measures.learned import learned_statistics
from vitplug.analysis.measures.places import Place
from vitplug.statistics.images import Arrays, Estimate, exact

from . import drawing
from .features import over_depth
from .loaded import Loaded
from .measure import Measure, Recorded, Shown, by_block
from .subject import Subject

# Prefix of the name of a block's map in the arrays of a unit.
MAP = 'map of block '
# Statistics that say something of several numbers alone.
OF_SEVERAL = ('min', 'max', 'quantile_ratio')
# The numbers of a fit, by the names of the values.
FITTED = {'sigma x': 'sigma_x', 'sigma y': 'sigma_y', 'R²': 'r_squared'}


class OfModel(Measure):
    """Numbers of each block that depend on no image; the first image makes the model tell them."""

    axes = ('layer',)

    def units(self, *subjects: Subject) -> list[Sequence[int]]:
        return [[0]]

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        [unit] = units
        return exact({name: value for name, value in unit.items() if not name.startswith(MAP)})


class PositionBias(OfModel):
    name = 'position_bias'
    title = 'Position bias of the central query'
    definition = (
        'Gaussian fitted to the position bias of the central query, host and plugs together, mean over heads, minimum '
        'subtracted: its standard deviations, and the share of the variance that it explains'
    )
    unit = 'tokens; R²: share'
    source = 'Gaussian Attention Bias, Fig. 6 and Table 1'
    needs = 'position biases in attention'

    def why_no_bias(self, subject: Subject) -> str:
        """Why a model has no bias to look at; empty where it has."""
        shapes = subject.recorded.get('bias', {}).values()
        if not shapes:
            return 'no block has a position bias in its attention'
        per_window = any(len(shape) == 5 and shape[0] * shape[1] > 1 for shape in shapes)
        return 'windows have position biases of their own' if per_window else ''

    def why_not(self, subject: Subject) -> str:
        if found := self.why_no_bias(subject):
            return found
        grids = {subject.place(layer, subject.sizes[0]).site.pairs.keys.hw for layer in subject.recorded['bias']}
        if not any(map(_can_be_fitted, grids)):
            return (
                f'no grid of keys is large enough for a Gaussian: {", ".join(f"{h} x {w}" for h, w in sorted(grids))}'
            )
        return ''

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('bias',)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> np.ndarray:
        return centre_bias(tensor, place.site).cpu().numpy()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        maps = {layer: bias for layer, bias in recorded['bias'].items() if _can_be_fitted(bias.shape)}
        fits = {layer: fit_gaussian(bias) for layer, bias in maps.items()}
        values = {
            value: by_block({layer: getattr(fit, name) for layer, fit in fits.items()}, subject.num_layers)
            for value, name in FITTED.items()
        }
        return values | {f'{MAP}{layer:02}': bias.astype(np.float32) for layer, bias in maps.items()}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        maps = {}
        for one in shown:
            [unit] = one.units
            for name in drawing.some([name for name in unit if name.startswith(MAP)]):
                layer = int(name.removeprefix(MAP))
                r_squared = one.estimates['R²'].mean[layer]
                fit = f'R² {r_squared:.2f}' if np.isfinite(r_squared) else 'no fit'
                maps[f'{one.label}, block {layer}: {fit}'] = unit[name]
        return drawing.maps(self.title, maps)


def _can_be_fitted(hw: tuple[int, ...]) -> bool:
    return math.prod(hw) >= PARAMETERS and min(hw) >= 2


class Learned(OfModel):
    name = 'learned'
    title = 'Learned values of plugs'
    definition = (
        'What plugs have learned, as it acts: alpha, A, sigma and Lambda of each block, over heads or channels; values '
        'that blocks share are given at each; the quantile ratio of a Lambda is its 10 % over its 90 % quantile'
    )
    unit = 'as learned'
    source = 'ReViT, Fig. 10; Gaussian Attention Bias; Context Broadcasting, Fig. 6'
    needs = 'plugs with learned values'

    def why_not(self, subject: Subject) -> str:
        return '' if subject.backbone.learned_values() else 'it has no plug with learned values'

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        values: dict[str, dict[int, float]] = {}
        for name, by_place in learned_statistics(subject.backbone).items():
            for block, statistics in by_place.items():
                blocks = range(subject.num_layers) if block is None else [block]
                # The least and the largest of one number are that number.
                untold = ('count', *(OF_SEVERAL if statistics['count'] == 1 else ()))
                for statistic, number in statistics.items():
                    if statistic not in untold:
                        values.setdefault(f'{name}, {statistic.replace("_", " ")}', {}).update(
                            dict.fromkeys(blocks, number)
                        )
        return {value: by_block(numbers, subject.num_layers) for value, numbers in values.items()}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return over_depth(self, shown)


LEARNED = (PositionBias(), Learned())
