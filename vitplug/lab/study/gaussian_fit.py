"""Two-dimensional Gaussians fitted to maps: to effective receptive fields, and to position biases.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3.3: five free parameters, no constant, axes along those of the image, least squares::

    amp / (2 pi sigma_x sigma_y) * exp(-(x - x0)^2 / (2 sigma_x^2) - (y - y0)^2 / (2 sigma_y^2))

    R^2 = 1 - var(residual) / var(map)
"""

import contextlib
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


@dataclass(frozen=True)
class GaussianFit:
    """A Gaussian; all numbers are NaN where none was found. Positions and sigmas are in steps of the map.

    Attributes:
        amp: Its volume.
        x, y: Column and row of its centre, counted from 0 at the middle of the first one.
        sigma_x, sigma_y: Standard deviations along a row and along a column, above 0.
        r_squared: The share of the map's variance that it explains; 1 for a Gaussian.
    """

    amp: float = math.nan
    x: float = math.nan
    y: float = math.nan
    sigma_x: float = math.nan
    sigma_y: float = math.nan
    r_squared: float = math.nan

    @property
    def converged(self) -> bool:
        """Whether there is a fit."""
        return math.isfinite(self.r_squared)

    def __str__(self) -> str:
        if not self.converged:
            return 'no fit'
        return f'sigma {self.sigma_x:.2g} x {self.sigma_y:.2g}, R² {self.r_squared:.2f}'


def fit_gaussian(image: Tensor | np.ndarray) -> GaussianFit:
    """Fits a Gaussian to a map ``(h, w)`` by least squares; its volume is not negative and its centre on the map.

    The search starts from the paper's values (centre at 0.4 of the sides, sigmas of a fifteenth and a ninth of
    them) and from the map's peak; the better result counts. There is no fit to a constant, to numbers that are not
    finite, to a single row or fewer values than parameters, and none worse than a constant.
    """
    values = image.detach().cpu().double().numpy() if isinstance(image, torch.Tensor) else np.asarray(image, float)
    if values.size < PARAMETERS or min(values.shape) < 2 or not np.isfinite(values).all() or values.var() == 0:
        return GaussianFit()
    scale = np.abs(values).max()
    values, last = values / scale, np.subtract(values.shape[::-1], 1)
    best = _best(values, bounds=False)
    # The search within bounds takes several times longer; what lies within them needs none.
    if best is None or best[0] * best[3] * best[4] < 0 or not ((best[1:3] >= 0) & (best[1:3] <= last)).all():
        best = _best(values, bounds=True)
    r_squared = -math.inf if best is None else 1 - (values - _gaussian(values.shape, *best)).var() / values.var()
    if r_squared <= 0:
        return GaussianFit()
    amp, x, y, sigma_x, sigma_y = map(float, best)
    # A pair of negative sigmas is the same Gaussian; one of them alone turns the sign of the volume.
    amp *= math.copysign(scale, sigma_x * sigma_y)
    return GaussianFit(amp, x, y, abs(sigma_x), abs(sigma_y), float(r_squared))


def _gaussian(hw: tuple[int, int], amp: float, x: float, y: float, sigma_x: float, sigma_y: float) -> np.ndarray:
    along_x, along_y = (
        np.exp(-((np.arange(side) - middle) ** 2) / (2 * sigma**2))
        for side, middle, sigma in ((hw[1], x, sigma_x), (hw[0], y, sigma_y))
    )
    return amp / (2 * np.pi * sigma_x * sigma_y) * np.outer(along_y, along_x)


def _best(values: np.ndarray, bounds: bool) -> np.ndarray | None:
    """The parameters of the closest Gaussian that least squares finds; None where no search converges."""
    height, width = values.shape
    tiny, fits = np.finfo(float).tiny, []
    box = [0, 0, 0, tiny, tiny], [np.inf, width - 1, height - 1, np.inf, np.inf]
    settings = dict(bounds=box, max_nfev=MOST_EVALUATIONS) if bounds else dict(maxfev=MOST_EVALUATIONS)

    def model(_: np.ndarray, *parameters: float) -> np.ndarray:
        return _gaussian(values.shape, *parameters).ravel()

    with np.errstate(all='ignore'), warnings.catch_warnings():
        warnings.simplefilter('ignore', OptimizeWarning)  # of the covariance, which nobody asks for
        for start in _starts(values):
            start = np.clip(start, *box) if bounds else start
            with contextlib.suppress(RuntimeError, ValueError):  # no convergence, or steps to no finite Gaussian
                fits.append(curve_fit(model, np.arange(values.size), values.ravel(), start, **settings)[0])
        errors = [np.square(values - _gaussian(values.shape, *fit)).sum() for fit in fits]
    finite = [at for at, error in enumerate(errors) if np.isfinite(error)]
    return fits[min(finite, key=errors.__getitem__)] if finite else None


def _starts(values: np.ndarray) -> Iterator[tuple[float, ...]]:
    """Where the search starts: centre and sigmas, each with the volume that fits best."""
    height, width = values.shape
    paper = (0.4 * (width - 1), 0.4 * (height - 1), (width - 1) / 15, (height - 1) / 9)
    # The peak, with the width of what exceeds half of it: a Gaussian does so on a disc of radius sqrt(2 ln 2) sigma.
    size = np.abs(values)
    row, column = np.unravel_index(size.argmax(), size.shape)
    sigma = max(math.sqrt(np.count_nonzero(size >= size.max() / 2) / (2 * math.pi * math.log(2))), 0.5)
    for shape in (paper, (float(column), float(row), sigma, sigma)):
        unit = _gaussian(values.shape, 1.0, *shape)
        yield ((values * unit).sum() / np.square(unit).sum(), *shape)
