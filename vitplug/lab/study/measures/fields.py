"""The effective receptive field (ERF): how strongly each input pixel acts on the central token of the last map.

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields* (arXiv 2305.04722),
Section 3 and its code::

    Y = mean over channels of map[centre]        G = mean over input channels of dY / dx
    ERF = mean over images of relu(G)            x: the normalised image

The rectifier acts on each image, so images go through one at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.attention.precision import at_least_float32
from vitplug.hosting import PluggedModel, with_gradient
from vitplug.statistics.images import Arrays

from ..gaussian_fit import fit_gaussian
from ..measure import Run, Seen, measure, together

#: From images ``(1, C, H, W)`` to the last map ``(1, D, h, w)``.
FeatureMap = Callable[[Tensor], Tensor]
#: The numbers of a fit, by the names of the values.
FITTED = {'sigma x': 'sigma_x', 'sigma y': 'sigma_y', 'centre x': 'x', 'centre y': 'y', 'R²': 'r_squared'}
# A gradient that is smaller than this share of a comparable one is rounding noise: float32 has 7 digits.
NOISE = 1e-4


# --- the last map ---


def centre_token(hw: tuple[int, int]) -> tuple[int, int]:
    """Row and column of the central token; of four central ones, or of two, the upper left one."""
    return (hw[0] - 1) // 2, (hw[1] - 1) // 2


def last_map(backbone: PluggedModel, images: Tensor) -> Tensor:
    """The patch tokens that the backbone's last output is made of, ``(B, D, h, w)``, whatever its ``out_type``.

    They come after the final norm, where there is one: a model that normalises after pooling gives the tokens as the
    last block does.
    """
    out_type = getattr(backbone, 'out_type', None)
    if out_type in (None, 'featmap'):  # hosts without a choice give maps
        return backbone.forward_features(images, None)[-1]
    backbone.out_type = 'featmap'
    try:
        return backbone.forward_features(images, None)[-1]
    finally:
        backbone.out_type = out_type


def feature_map(run: Run) -> FeatureMap | PluggedModel:
    """What gives the last map: a backbone of vitplug, or a function of any model that gives one."""
    own = getattr(run.model, 'backbone', None)
    if isinstance(own, PluggedModel):
        return own
    timm = getattr(run.model, 'model', None)
    if own is None and hasattr(timm, 'forward_features'):
        return lambda image: _timm_map(timm, image)
    return lambda image: _last(own(image))


def map_of(features: FeatureMap | PluggedModel, images: Tensor) -> Tensor:
    """The last map ``(B, D, h, w)``."""
    return last_map(features, images) if isinstance(features, PluggedModel) else features(images)


def _last(outputs: Tensor | Sequence[Tensor]) -> Tensor:
    return outputs if isinstance(outputs, Tensor) else outputs[-1]


def _timm_map(model: nn.Module, image: Tensor) -> Tensor:
    """The map of timm's ``forward_features``, prefix tokens dropped.

    Raises:
        ValueError: If it gives no map, or its tokens are no grid of patches.
    """
    maps = model.forward_features(image)
    if isinstance(maps, Tensor) and maps.ndim == 4:
        return maps.permute(0, 3, 1, 2) if getattr(model, 'output_fmt', 'NCHW') == 'NHWC' else maps
    grid_of = getattr(getattr(model, 'patch_embed', None), 'dynamic_feat_size', None)  # knows padding and stems
    if isinstance(maps, Tensor) and maps.ndim == 3 and grid_of is not None:
        patches, (rows, columns) = maps[:, getattr(model, 'num_prefix_tokens', 0) :], grid_of(image.shape[-2:])
        if rows * columns == patches.shape[1]:
            return patches.mT.unflatten(2, (rows, columns))
    what = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
    raise ValueError(f'{type(model).__name__}: forward_features gives {what}, which is no map of patches')


# --- gradients ---


@contextmanager
def frozen(model: object) -> Iterator[None]:
    """Keeps no activations for gradients of parameters, which nobody asks for: they are the largest part."""
    trained = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def input_gradient(features: PluggedModel | FeatureMap, image: Tensor) -> Tensor:
    """What one image ``(1, C, H, W)`` adds to the ERF: the rectified gradient of the central token, ``(H, W)``.

    ``features`` is a backbone in evaluation mode, or any function from an image to a map.

    Raises:
        ValueError: If the model is in training mode, there are several images, or ``features`` gives no map that
            depends on the image.
    """
    return _gradient(features, image).mean(0).relu()


def cancels(features: PluggedModel | FeatureMap, image: Tensor) -> bool:
    """Whether the mean over channels does not depend on the image, so that its gradient is rounding noise.

    A LayerNorm that scales all channels alike, as an untrained one does, gives tokens with a constant mean. The
    gradient of the mean is compared with that of a sum with alternating signs.
    """
    of_mean, of_others = (_gradient(features, image, alternating) for alternating in (False, True))
    return bool(of_mean.norm() < NOISE * of_others.norm())


def _gradient(features: PluggedModel | FeatureMap, image: Tensor, alternating: bool = False) -> Tensor:
    """The gradient ``(C, H, W)`` of the central token's mean over channels, or of their mean with alternating signs."""
    if getattr(features, 'training', False):
        raise ValueError(f'{type(features).__name__} is in training mode, with dropout: call eval() first')
    if image.ndim != 4 or len(image) != 1:
        raise ValueError(f'image of shape {tuple(image.shape)}: expected (1, C, H, W), one image at a time')
    with torch.enable_grad(), frozen(features):
        pixels = with_gradient(image)
        maps = map_of(features, pixels)
        if maps.ndim != 4 or len(maps) != 1 or not maps.requires_grad:
            raise ValueError(
                f'features gives {tuple(maps.shape)}, requires_grad={maps.requires_grad}: expected a map (1, D, h, w) '
                'with a gradient'
            )
        row, column = centre_token(maps.shape[-2:])
        token_D = maps[0, :, row, column].to(at_least_float32(maps.dtype))
        if alternating:
            token_D = token_D * (1 - 2 * (torch.arange(len(token_D), device=token_D.device) % 2))
        return torch.autograd.grad(token_D.mean(), pixels)[0][0]


# --- the measure ---


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
    draw='receptive_fields',
)
def erf(seen: Seen) -> Arrays:
    """Gradient of the central token of the last map, mean over channels, to the normalised image, mean over its
    channels, rectified, averaged over images of the most frequent size; and the Gaussian fitted to it: standard
    deviations and the share of the variance that it explains."""
    features = feature_map(seen.run)
    if 'cancels' not in seen.run.cache:
        seen.run.cache['cancels'] = cancels(features, seen.inputs)
    field = input_gradient(features, seen.inputs).float().cpu().numpy()
    return {'field': field, 'is noise': np.array(float(seen.run.cache['cancels']))}


FIELDS = (erf,)
