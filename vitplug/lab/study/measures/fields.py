"""The effective receptive field (ERF): how strongly each input pixel acts on the central token of the last map; and the
Gaussians that are fitted to it and to position biases.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3 and its code::

    Y = mean over channels of map[centre]        G = mean over input channels of dY / dx
    ERF = mean over images of relu(G)            x: the normalised image

The rectifier acts on each image, so images go through one at a time.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from scipy.optimize import OptimizeWarning, curve_fit
from torch import Tensor, nn

from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PluggedModel, keep_padding
from vitplug.statistics.images import Arrays

from ..measure import Seen, measure, together

SOURCE = 'Gaussian Attention Bias, Sec. 3 and supplement'
# What a fit gives.
FITTED = 'sigma x', 'sigma y', 'centre x', 'centre y', 'R²'
# Least squares needs as many values as parameters.
PARAMETERS = 5
MOST_EVALUATIONS = 2000
# A gradient that is smaller than this share of that of a sum with alternating signs is rounding noise.
NOISE = 1e-4


def centre_token(hw: tuple[int, int]) -> tuple[int, int]:
    """Row and column of the central token; of four central ones, or of two, the upper left one."""
    return (hw[0] - 1) // 2, (hw[1] - 1) // 2


def last_map(model: nn.Module, images: Tensor) -> Tensor:
    """The patch tokens that the last output of a model's backbone is made of, ``(B, D, h, w)``, whatever its output.

    They come after the final norm, where there is one: a model that normalises after pooling gives the tokens as the
    last block does. A model of timm without a grid of patches raises a ValueError.
    """
    network = getattr(model, 'backbone', None) or getattr(model, 'model', model)
    if not isinstance(network, PluggedModel):
        if getattr(model, 'backbone', None) is None and hasattr(network, 'forward_features'):  # of timm
            return _as_map(network, network.forward_features(images), images)
        maps = network(images)
        return maps if isinstance(maps, Tensor) else maps[-1]
    own = getattr(network, 'out_type', None)  # hosts without a choice give maps
    try:
        if own is not None:
            network.out_type = 'featmap'
        return network.forward_features(images, None)[-1]
    finally:
        if own is not None:
            network.out_type = own


def _as_map(model: nn.Module, maps: Tensor, images: Tensor) -> Tensor:
    """What timm's ``forward_features`` gives as a map, prefix tokens dropped."""
    if maps.ndim == 4:
        return maps.permute(0, 3, 1, 2) if getattr(model, 'output_fmt', 'NCHW') == 'NHWC' else maps
    patches = maps[:, getattr(model, 'num_prefix_tokens', 0) :]
    grid_of = getattr(getattr(model, 'patch_embed', None), 'dynamic_feat_size', None)  # knows padding and stems
    if maps.ndim != 3 or grid_of is None or math.prod(hw := grid_of(images.shape[-2:])) != patches.shape[1]:
        raise ValueError(f'{type(model).__name__}: {tuple(maps.shape)} is no map of patches')
    return patches.mT.unflatten(2, hw)


def input_gradient(features: Callable[[Tensor], Tensor], image: Tensor, alternating: bool = False) -> Tensor:
    """The gradient ``(C, H, W)`` of the central token's mean over channels for one image ``(1, C, H, W)``.

    ``features`` gives the last map ``(1, D, h, w)``. The mean over C, rectified, is what the image adds to the ERF.
    ``alternating`` signs the channels in turn.
    """
    with torch.enable_grad():
        pixels = keep_padding(image.detach().clone().requires_grad_(), image)
        maps = features(pixels)
        row, column = centre_token(maps.shape[-2:])
        token_D = maps[0, :, row, column].to(at_least_float32(maps.dtype))
        if alternating:
            token_D = token_D * (1 - 2 * (torch.arange(len(token_D), device=token_D.device) % 2))
        return torch.autograd.grad(token_D.mean(), pixels)[0][0]


# --- Gaussians ---


def fit_gaussian(image: Tensor | np.ndarray) -> dict[str, float]:
    """Fits a Gaussian to a map ``(h, w)`` by least squares; its volume is not negative and its centre on the map::

        volume / (2 pi sigma_x sigma_y) * exp(-(x - x0)^2 / (2 sigma_x^2) - (y - y0)^2 / (2 sigma_y^2))

    The search starts from the paper's values (centre at 0.4 of the sides, sigmas of a fifteenth and a ninth of
    them) and from the map's peak; the better result counts. There is no fit to a constant, to numbers that are not
    finite, to a single row or fewer values than parameters, and none worse than a constant.

    Returns:
        ``'sigma x'`` and ``'sigma y'``, standard deviations along a row and along a column, above 0; ``'centre x'`` and
        ``'centre y'``, column and row of the centre, counted from 0 at the middle of the first one, all in steps of the
        map; and ``'R²'``, the share of the map's variance that it explains, ``1 - var(residual) / var(map)``. All are
        NaN where there is no fit.
    """
    values = image.detach().cpu().double().numpy() if isinstance(image, torch.Tensor) else np.asarray(image, float)
    if values.size < PARAMETERS or min(values.shape) < 2 or not np.isfinite(values).all() or values.var() == 0:
        return dict.fromkeys(FITTED, math.nan)
    values, last = values / np.abs(values).max(), np.subtract(values.shape[::-1], 1)
    best = _best(values, bounds=False)
    # The search within bounds takes several times longer; what lies within them needs none.
    if best is None or best[0] * best[3] * best[4] < 0 or not ((best[1:3] >= 0) & (best[1:3] <= last)).all():
        best = _best(values, bounds=True)
    r_squared = -math.inf if best is None else 1 - (values - _gaussian(values.shape, *best)).var() / values.var()
    if r_squared <= 0:
        return dict.fromkeys(FITTED, math.nan)
    _, x, y, sigma_x, sigma_y = map(float, best)
    # A pair of negative sigmas is the same Gaussian; one of them alone turns the sign of the volume.
    return dict(zip(FITTED, (abs(sigma_x), abs(sigma_y), x, y, float(r_squared)), strict=True))


def _gaussian(hw: tuple[int, int], volume: float, x: float, y: float, sigma_x: float, sigma_y: float) -> np.ndarray:
    along_x, along_y = (
        np.exp(-((np.arange(side) - middle) ** 2) / (2 * sigma**2))
        for side, middle, sigma in ((hw[1], x, sigma_x), (hw[0], y, sigma_y))
    )
    return volume / (2 * np.pi * sigma_x * sigma_y) * np.outer(along_y, along_x)


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


# --- the measure ---


def mean_field(fields: Sequence[np.ndarray]) -> np.ndarray:
    """The ERF of some images, each ``(H, W)``, its sum being 1; zeros stay zeros."""
    mean = np.mean(fields, 0, dtype=np.float64)
    return mean / max(mean.sum(), np.finfo(float).tiny)


def _fit(units: Sequence[Arrays]) -> Arrays:
    noise = {'rounding noise': 1.0} if units[0]['is noise'] else {}
    return fit_gaussian(mean_field([unit['field'] for unit in units])) | noise


@measure('pixels; R²: share', SOURCE, estimate=together(_fit), one_size=True, draw='fitted')
def erf(seen: Seen) -> Arrays:
    """Gradient of the central token of the last map, mean over channels, to the normalised image, mean over its
    channels, rectified, averaged over images of the most frequent size; and the Gaussian fitted to it: standard
    deviations and the share of the variance that it explains."""
    features, cache = partial(last_map, seen.run.model), seen.run.cache
    gradient = input_gradient(features, seen.inputs)
    if 'cancels' not in cache:
        # A LayerNorm that scales all channels alike, as an untrained one does, gives tokens with a constant mean.
        cache['cancels'] = gradient.norm() < NOISE * input_gradient(features, seen.inputs, True).norm()
    return {'field': gradient.mean(0).relu().float().cpu().numpy(), 'is noise': np.array(float(cache['cancels']))}
