"""Measures of the model alone: its position biases, and what its plugs have learned."""

import math

import numpy as np
from torch import Tensor

from vitplug.statistics.images import Arrays

from .. import figures
from ..measure import SHOWN, Measure, Seen, by_block, of_model
from ..quantities.gaussian_fit import PARAMETERS, centre_bias, fit_gaussian
from ..quantities.learned import learned_statistics
from ..quantities.places import Place
from ..runs import Run

# Statistics that say something of several numbers alone.
OF_SEVERAL = ('min', 'max', 'quantile_ratio')
# The numbers of a fit, by the names of the values.
FITTED = {'sigma x': 'sigma_x', 'sigma y': 'sigma_y', 'centre x': 'x', 'centre y': 'y', 'R²': 'r_squared'}


def _bias(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    """The bias of the central query; None where windows have biases of their own, which no one map shows."""
    if tensor.ndim == 5 and tensor.shape[0] * tensor.shape[1] > 1:
        return None
    return centre_bias(tensor, place.site).cpu().numpy()


def _bias_fits(seen: Seen) -> Arrays:
    biases = {layer: bias for layer, bias in seen.found.get('bias', {}).items() if bias is not None}
    maps = {
        layer: bias for layer, bias in biases.items() if math.prod(bias.shape) >= PARAMETERS and min(bias.shape) >= 2
    }
    fits = {layer: fit_gaussian(bias) for layer, bias in maps.items()}
    values = {
        value: by_block({layer: getattr(fit, name) for layer, fit in fits.items()}, seen.run.blocks)
        for value, name in FITTED.items()
    }
    return values | {f'{SHOWN}block {layer:02}': bias.astype(np.float32) for layer, bias in maps.items()}


def _learned(seen: Seen) -> Arrays:
    values: dict[str, dict[int, float]] = {}
    for name, by_place in learned_statistics(seen.run.backbone).items():
        for block, statistics in by_place.items():
            blocks = range(seen.run.blocks) if block is None else [block]
            # The least and the largest of one number are that number.
            untold = ('count', *(OF_SEVERAL if statistics['count'] == 1 else ()))
            for statistic, number in statistics.items():
                if statistic not in untold:
                    told = f'{name}, {statistic.replace("_", " ")}'
                    values.setdefault(told, {}).update(dict.fromkeys(blocks, number))
    return {value: by_block(numbers, seen.run.blocks) for value, numbers in values.items()}


def _no_values(run: Run) -> str:
    return '' if run.backbone.learned_values() else 'it has no plug with learned values'


LEARNED = (
    Measure(
        'position_bias',
        'Gaussian fitted to the position bias of the central query, host and plugs together, mean over heads, minimum '
        'subtracted: its standard deviations, and the share of the variance that it explains',
        'tokens; R²: share',
        'Gaussian Attention Bias, Fig. 6 and Table 1',
        _bias_fits,
        ('bias',),
        _bias,
        of_model,
        ('layer',),
        most=1,
        draw=figures.biases,
    ),
    Measure(
        'learned',
        'What plugs have learned, as it acts: alpha, A, sigma and Lambda of each block, over heads or channels; values '
        'that blocks share are given at each; the quantile ratio of a Lambda is its 10 % over its 90 % quantile',
        'as learned',
        'ReViT, Fig. 10; Gaussian Attention Bias; Context Broadcasting, Fig. 6',
        _learned,
        estimate=of_model,
        axes=('layer',),
        most=1,
        why_not=_no_values,
    ),
)
