"""Two-dimensional Gaussians fitted to maps: to effective receptive fields, and to position biases.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3.3: five free parameters, no constant, axes along those of the image, least squares::

    amp / (2 pi sigma_x sigma_y) * exp(-(x - x0)^2 / (2 sigma_x^2) - (y - y0)^2 / (2 sigma_y^2))

    R^2 = 1 - var(residual) / var(map)
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import OptimizeWarning, curve_fit
from torch import Tensor

# Least squares needs as many values as parameters.
PARAMETERS = 5
MOST_EVALUATIONS = 2000
# A fit is doubtful with a centre so near to the edge or a sigma below the narrowest, in steps of the map, or with a
# sigma above so many sides of it.
EDGE, NARROWEST, WIDEST = 1e-3, 0.5, 2


@dataclass(frozen=True)
class GaussianFit:
    """A Gaussian, or why there is none. Positions and sigmas are in steps of the map: pixels, or tokens.

    Attributes:
        amp: Its volume.
        x, y: Column and row of its centre, counted from 0 at the middle of the first one.
        sigma_x, sigma_y: Standard deviations along a row and along a column, above 0.
        r_squared: The share of the map's variance that it explains; 1 for a Gaussian.
        failure: Why the fit failed; then all numbers are NaN. '' if it converged.
        doubt: Why its numbers describe no blob of the map; '' if they may.
    """

    amp: float = math.nan
    x: float = math.nan
    y: float = math.nan
    sigma_x: float = math.nan
    sigma_y: float = math.nan
    r_squared: float = math.nan
    failure: str = ''
    doubt: str = ''

    @property
    def converged(self) -> bool:
        """Whether there is a fit."""
        return not self.failure

    def __str__(self) -> str:
        if not self.converged:
            return 'no fit'
        doubt = ' (doubtful)' if self.doubt else ''
        return f'sigma {self.sigma_x:.2g} x {self.sigma_y:.2g}, R² {self.r_squared:.2f}{doubt}'


def fit_gaussian(image: Tensor | np.ndarray) -> GaussianFit:
    """Fits a Gaussian to a map ``(h, w)`` by least squares; its volume is not negative and its centre on the map.

    The search starts from the paper's values (centre at 0.4 of the sides, sigmas of a fifteenth and a ninth of
    them), from the moments of the map, and from its peak; the best result counts. A failure is reported in the result,
    not raised: a report goes on without this fit.

    Raises:
        ValueError: If it is no map ``(h, w)``, has numbers that are not finite, or fewer than five values.
    """
    values = image.detach().cpu().double().numpy() if isinstance(image, torch.Tensor) else np.asarray(image, float)
    if values.ndim != 2 or values.size < PARAMETERS or min(values.shape) < 2:
        raise ValueError(f'map of shape {values.shape}: expected (h, w) with at least {PARAMETERS} values and two rows')
    if not np.isfinite(values).all():
        raise ValueError('the map has numbers that are not finite')
    scale = np.abs(values).max()
    if values.var() == 0 or scale == 0:
        return GaussianFit(failure='the map is constant')
    values = values / scale
    best = _best(values, bounds=False)
    # The search within bounds takes several times longer; what lies within them needs none.
    if best is None or best[0] * best[3] * best[4] < 0 or not _is_on(values.shape, best[1], best[2], 0):
        best = _best(values, bounds=True)
    if best is None:
        return GaussianFit(failure=f'least squares did not converge in {MOST_EVALUATIONS} evaluations')
    amp, x, y, sigma_x, sigma_y = best
    r_squared = 1 - (values - _gaussian(values.shape, *best)).var() / values.var()
    if r_squared <= 0:
        return GaussianFit(failure='no Gaussian comes closer to the map than a constant')
    # A pair of negative sigmas is the same Gaussian; one of them alone turns the sign of the volume.
    amp = amp * np.sign(sigma_x * sigma_y) * scale
    numbers = tuple(map(float, (amp, x, y, abs(sigma_x), abs(sigma_y), r_squared)))
    return GaussianFit(*numbers, doubt='; '.join(_doubts(values.shape, *numbers[1:5])))


def _gaussian(hw: tuple[int, int], amp: float, x: float, y: float, sigma_x: float, sigma_y: float) -> np.ndarray:
    along_x, along_y = (
        np.exp(-((np.arange(side) - middle) ** 2) / (2 * sigma**2))
        for side, middle, sigma in ((hw[1], x, sigma_x), (hw[0], y, sigma_y))
    )
    return amp / (2 * np.pi * sigma_x * sigma_y) * np.outer(along_y, along_x)


def _best(values: np.ndarray, bounds: bool) -> np.ndarray | None:
    """The parameters of the closest Gaussian that the searches find; None where none of them converges."""
    fits = [fit for start in _starts(values) if (fit := _search(values, start, bounds)) is not None]
    return min(fits, key=lambda fit: float(np.square(values - _gaussian(values.shape, *fit)).sum()), default=None)


def _search(values: np.ndarray, start: tuple[float, ...], bounds: bool) -> np.ndarray | None:
    """The parameters that least squares finds from a start; None where it does not converge."""
    height, width = values.shape
    tiny = np.finfo(float).tiny
    box = [0, 0, 0, tiny, tiny], [np.inf, width - 1, height - 1, np.inf, np.inf]
    settings = dict(bounds=box, max_nfev=MOST_EVALUATIONS) if bounds else dict(maxfev=MOST_EVALUATIONS)

    def model(_: np.ndarray, *parameters: float) -> np.ndarray:
        return _gaussian(values.shape, *parameters).ravel()

    try:
        with np.errstate(all='ignore'), warnings.catch_warnings():
            warnings.simplefilter('ignore', OptimizeWarning)  # of the covariance, which nobody asks for
            start = np.clip(start, *box) if bounds else start
            fitted, _ = curve_fit(model, np.arange(values.size), values.ravel(), start, **settings)
    except (RuntimeError, ValueError):  # no convergence, or steps to where the Gaussian is not finite
        return None
    return fitted if np.isfinite(_gaussian(values.shape, *fitted)).all() else None


def _starts(values: np.ndarray) -> Iterator[tuple[float, ...]]:
    """Where the search starts: centre and sigmas, each with the volume that fits best."""
    height, width = values.shape
    paper = (0.4 * (width - 1), 0.4 * (height - 1), (width - 1) / 15, (height - 1) / 9)
    for shape in (paper, *_moments(values), _peak(values)):
        unit = _gaussian(values.shape, 1.0, *shape)
        yield ((values * unit).sum() / np.square(unit).sum(), *shape)


def _moments(values: np.ndarray) -> Iterator[tuple[float, ...]]:
    """Mean and standard deviation along both axes, of the map above its median."""
    weights = np.clip(values - np.median(values), 0, None)
    if weights.sum() > 0:
        of_axes = [weights.sum(axis) / weights.sum() for axis in (0, 1)]
        middles = [(along * np.arange(len(along))).sum() for along in of_axes]
        spreads = [
            (along * (np.arange(len(along)) - middle) ** 2).sum()
            for along, middle in zip(of_axes, middles, strict=True)
        ]
        yield (*middles, *(max(math.sqrt(spread), 0.5) for spread in spreads))


def _peak(values: np.ndarray) -> tuple[float, ...]:
    """The largest value's place, with the width of what exceeds half of it: a peak on a floor moves no moment."""
    size = np.abs(values)
    row, column = np.unravel_index(size.argmax(), size.shape)
    # A Gaussian exceeds half of its peak on a disc of radius sqrt(2 ln 2) sigma.
    sigma = max(math.sqrt(np.count_nonzero(size >= size.max() / 2) / (2 * math.pi * math.log(2))), 0.5)
    return float(column), float(row), sigma, sigma


def _is_on(hw: tuple[int, int], x: float, y: float, edge: float) -> bool:
    return edge <= x <= hw[1] - 1 - edge and edge <= y <= hw[0] - 1 - edge


def _doubts(hw: tuple[int, int], x: float, y: float, sigma_x: float, sigma_y: float) -> Iterator[str]:
    if not _is_on(hw, x, y, EDGE):
        yield 'its centre is at the edge of the map, or outside'
    if min(sigma_x, sigma_y) < NARROWEST:
        yield 'it is narrower than half a step: it fits one row or column of the map'
    if max(sigma_x / hw[1], sigma_y / hw[0]) > WIDEST:
        yield f'it is more than {WIDEST} times as wide as the map'
