"""What the gradients of a finished run say: the fitted Gaussians with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitplug.analysis.measures.gaussian_fit import GaussianFit, centre_bias, fit_gaussian
from vitplug.analysis.measures.learned import learned_statistics
from vitplug.analysis.measures.receptive_field import cancels, centre_token
from vitplug.analysis.study.loaded import Loaded
from vitplug.analysis.study.places import ImagePlace
from vitplug.analysis.study.store import Store
from vitplug.hosting import PluggedModel
from vitplug.statistics.images import Estimate, jackknife, without_groups

from .fields import Field
from .run import MEASURE

NUMBERS = ('amp', 'x', 'y', 'sigma_x', 'sigma_y', 'r_squared')
CANCELS = (
    'the final norm scales all channels alike, as in an untrained model: the mean of a token is constant, and this map '
    'is rounding noise'
)


@dataclass(frozen=True)
class Result:
    """What one ERF says.

    Attributes:
        field: Of which model.
        erf: The map ``(H, W)``, its sum being 1.
        fit: The Gaussian fitted to it.
        intervals: Intervals over images of the numbers of the fit, by name.
        centre: Row and column of the central token, and the size of its map.
        biases: Of each block with a position bias, the bias of the central query.
        bias_fits: Gaussians fitted to them.
        learned: Statistics of the learned values of plugs.
        warning: Why the map says nothing; '' if it does.
    """

    field: Field
    erf: np.ndarray
    fit: GaussianFit
    intervals: Mapping[str, Estimate]
    centre: tuple[tuple[int, int], tuple[int, int]]
    biases: Mapping[int, np.ndarray]
    bias_fits: Mapping[int, GaussianFit]
    learned: Mapping
    warning: str

    @classmethod
    def of(cls, field: Field, store: Store, paths: Sequence[ImagePlace], bounds: bool) -> 'Result':
        """Fits the sums of a finished run."""
        units = [unit for _, unit in sorted(store.units(field.label, MEASURE).items())]
        erf, fit = _fitted(units, bounds)
        left_out = [_numbers(_fitted(some, bounds)[1]) for some in without_groups(units)]
        image = field.subject.load(paths[0])
        size = field.map_size(image)
        biases = _biases(field.network, image) if isinstance(field.network, PluggedModel) else {}
        return cls(
            field,
            erf,
            fit,
            jackknife(_numbers(fit), left_out, len(paths)),
            (centre_token(size), size),
            biases,
            {block: _fit_bias(bias, bounds) for block, bias in biases.items()},
            learned_statistics(field.network) if isinstance(field.network, PluggedModel) else {},
            CANCELS if cancels(field.features, image.inputs) else '',
        )

    def as_json(self) -> dict[str, Any]:
        """The results as JSON can hold them."""
        (row, column), (rows, columns) = self.centre
        estimates = {name: _interval(self.intervals[name]) for name in NUMBERS}
        return self.field.describe() | dict(
            warning=self.warning,
            image_size=list(self.erf.shape),
            token=dict(row=row, column=column, rows=rows, columns=columns),
            fit=self.fit.as_json() | dict(intervals=estimates),
            biases={block: fit.as_json() for block, fit in self.bias_fits.items()},
            learned=self.learned,
        )


def _fitted(units: Sequence[Mapping[str, np.ndarray]], bounds: bool) -> tuple[np.ndarray, GaussianFit]:
    """The map of some groups of images, its sum being 1, and its Gaussian."""
    total = np.sum([unit['total'] for unit in units], axis=0)
    erf = total / total.sum() if total.sum() > 0 else total
    return erf, fit_gaussian(erf, bounds)


def _numbers(fit: GaussianFit) -> dict[str, np.ndarray]:
    return {name: np.array(getattr(fit, name)) for name in NUMBERS}


def _interval(estimate: Estimate) -> list[float] | None:
    ends = [float(estimate.low), float(estimate.high)]
    return ends if np.isfinite(ends).all() else None


@torch.no_grad()
def _biases(backbone: PluggedModel, image: Loaded) -> dict[int, np.ndarray]:
    """The bias of the central query of each block that has one; where it depends on queries, that of this image."""

    def reduce(name, bias, site):
        return centre_bias(bias[:1, :1] if bias.ndim == 5 else bias, site).cpu().numpy()

    _, recorded = backbone.forward_intermediates(image.inputs, ('bias',), reduce=reduce)
    return recorded.get('bias', {})


def _fit_bias(bias: np.ndarray, bounds: bool) -> GaussianFit:
    try:
        return fit_gaussian(bias, bounds)
    except ValueError as error:  # windows of a few tokens
        return GaussianFit.failed(str(error))
