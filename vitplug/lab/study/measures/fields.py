"""The effective receptive field (ERF): how strongly each input pixel acts on the central token of the last map.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3 and its code::

    Y = mean over channels of map[centre]        G = mean over input channels of dY / dx
    ERF = mean over images of relu(G)            x: the normalised image

The rectifier acts on each image, so images go through one at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PluggedModel, with_gradient
from vitplug.statistics.images import Arrays

from ..gaussian_fit import fit_gaussian
from ..measure import Seen, measure, together

#: From images ``(1, C, H, W)`` to the last map ``(1, D, h, w)``.
FeatureMap = Callable[[Tensor], Tensor]
#: The numbers of a fit, by the names of the values.
FITTED = {'sigma x': 'sigma_x', 'sigma y': 'sigma_y', 'centre x': 'x', 'centre y': 'y', 'R²': 'r_squared'}
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
        of_timm = getattr(model, 'backbone', None) is None and hasattr(network, 'forward_features')
        maps = network.forward_features(images) if of_timm else network(images)
        if of_timm:
            return _as_map(network, maps, images)
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
    if maps.ndim != 3 or grid_of is None or prod(hw := grid_of(images.shape[-2:])) != patches.shape[1]:
        raise ValueError(f'{type(model).__name__}: {tuple(maps.shape)} is no map of patches')
    return patches.mT.unflatten(2, hw)


def input_gradient(features: FeatureMap, image: Tensor, alternating: bool = False) -> Tensor:
    """The gradient ``(C, H, W)`` of the central token's mean over channels for one image ``(1, C, H, W)``.

    Its mean over C, rectified, is what the image adds to the ERF. ``alternating`` signs the channels in turn.
    """
    with torch.enable_grad():
        pixels = with_gradient(image)
        maps = features(pixels)
        row, column = centre_token(maps.shape[-2:])
        token_D = maps[0, :, row, column].to(at_least_float32(maps.dtype))
        if alternating:
            token_D = token_D * (1 - 2 * (torch.arange(len(token_D), device=token_D.device) % 2))
        return torch.autograd.grad(token_D.mean(), pixels)[0][0]


def mean_field(fields: Sequence[np.ndarray]) -> np.ndarray:
    """The ERF of some images, each ``(H, W)``, its sum being 1; zeros stay zeros."""
    mean = np.mean(fields, 0, dtype=np.float64)
    return mean / max(mean.sum(), np.finfo(float).tiny)


def _fit(units: Sequence[Arrays]) -> Arrays:
    fit = fit_gaussian(mean_field([unit['field'] for unit in units]))
    noise = {'rounding noise': np.array(1.0)} if units[0]['is noise'] else {}
    return {value: np.array(getattr(fit, name)) for value, name in FITTED.items()} | noise


@measure(
    'pixels; R²: share',
    'Gaussian Attention Bias, Sec. 3 and supplement',
    estimate=together(_fit),
    one_size=True,
    draw='fitted',
)
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
