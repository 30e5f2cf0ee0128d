"""Measures of the model alone: what its plugs have learned (alpha, A, sigma, Lambda), and its position biases."""

from collections.abc import Mapping
from math import prod

import numpy as np
from torch import Tensor

from vitplug.attention import Site
from vitplug.hosting import PluggedModel
from vitplug.statistics.images import Arrays

from ..gaussian_fit import PARAMETERS, fit_gaussian
from ..measure import SHOWN, Run, Seen, by_block, measure, of_model
from ..places import Place
from .fields import FITTED, centre_token

LOW, HIGH = 0.1, 0.9
#: Statistics by name of the value, such as ``gab.sigma``, block (None: the whole network) and name.
Statistics = Mapping[str, Mapping[int | None, Mapping[str, float]]]


def learned_statistics(backbone: PluggedModel) -> Statistics:
    """Statistics of all learned values of a backbone's plugs, as they act: a clamped alpha is clamped.

    Returns:
        ``{'gab.sigma': {block index: {'mean': ...}}}`` with ``'mean'``; ``'min'`` and ``'max'`` of several
        numbers; ``'quantile_ratio'`` of a Lambda. ``gab.sigma`` also has ``'pixels'``, the mean in pixels: of
        the rows and of the columns if they differ, ``'pixels_y'`` and ``'pixels_x'``.
    """
    statistics: dict[str, dict[int | None, dict[str, float]]] = {}
    for name, of_blocks in backbone.learned_values().items():
        symbol = name.split('.')[1]  # 'Lambda' of 'cb.Lambda.mlp_end'
        for block, value in of_blocks.items():
            value = value.detach().double()
            found = dict(mean=value.mean().item())
            if value.numel() > 1:
                found |= dict(min=value.min().item(), max=value.max().item())
            if symbol == 'sigma':
                found |= _in_pixels(found['mean'], backbone, block)
            if symbol == 'Lambda':
                found['quantile_ratio'] = quantile_ratio(value)
            statistics.setdefault(name, {})[block] = found
    return statistics


def quantile_ratio(scale: Tensor) -> float:
    """The 10 % quantile of ``|Lambda|`` over its 90 % quantile (*Context Broadcasting*, analysis of CB_S).

    1 if all channels are scaled alike, near 0 if some are scaled far more than others; NaN if nearly all are 0.
    """
    scale = scale.detach().double().abs().flatten()
    low, high = scale.quantile(scale.new_tensor([LOW, HIGH])).tolist()
    return low / high if high > 0 else float('nan')


def _in_pixels(sigma: float, backbone: PluggedModel, block: int | None) -> dict[str, float]:
    """A sigma in pixels at the configured image size, at which GAB's ``coord`` makes no difference.

    A Gaussian that all blocks share is in tokens of the grid of each; it has pixels if these are the same.
    """
    blocks = range(len(backbone.plugged_blocks())) if block is None else [block]
    strides = {_finer_stride(backbone, index) for index in blocks}
    if len(strides) > 1:
        return {}
    along_y, along_x = (sigma * stride for stride in strides.pop())
    return dict(pixels=along_y) if along_y == along_x else dict(pixels_y=along_y, pixels_x=along_x)


def _finer_stride(backbone: PluggedModel, block: int) -> tuple[float, float]:
    """Pixels from one token to the next of a block's queries or keys, whichever are closer together."""
    size = tuple(tokens * step for tokens, step in zip(backbone.patch_resolution, backbone.image_stride, strict=True))
    queries, keys = (grid_of(block, size)[1].stride for grid_of in (backbone.place_block, backbone.place_keys))
    return tuple(min(pair) for pair in zip(queries, keys, strict=True))


def _no_values(run: Run) -> str:
    return '' if run.backbone.learned_values() else 'it has no plug with learned values'


@measure(
    'as learned',
    'ReViT, Fig. 10; Gaussian Attention Bias; Context Broadcasting, Fig. 6',
    estimate=of_model,
    axes=('layer',),
    most=1,
    why_not=_no_values,
)
def learned(seen: Seen) -> Arrays:
    """What plugs have learned, as it acts: alpha, A, sigma and Lambda of each block, over heads or channels; values
    that blocks share are given at each; the quantile ratio of a Lambda is its 10 % over its 90 % quantile."""
    values: dict[str, dict[int, float]] = {}
    for name, of_blocks in learned_statistics(seen.run.backbone).items():
        for block, statistics in of_blocks.items():
            blocks = range(seen.run.blocks) if block is None else [block]
            for statistic, number in statistics.items():
                told = f'{name}, {statistic.replace("_", " ")}'
                values.setdefault(told, {}).update(dict.fromkeys(blocks, number))
    return {value: by_block(numbers, seen.run.blocks) for value, numbers in values.items()}


# --- position biases ---


def bias_of(bias: Tensor, site: Site, patch: int) -> Tensor:
    """The position bias of one query, mean over heads: ``(h, w)`` on the keys' grid.

    Args:
        bias: Intermediate ``'bias'`` of a block, ``(H or 1, Nq, Nk)`` or ``(B, W, H, Nq, Nk)``: the host's table and
            all plugs in the bias socket.
        site: Intermediate ``'site'`` of the block.
        patch: Index of the query among the patches of its window, in reading order.

    Raises:
        ValueError: If there are several images or windows with a bias of their own.
    """
    if has_own_biases(bias):
        raise ValueError(f'bias of shape {tuple(bias.shape)}: expected that of one image and one window')
    bias_HNN = bias[0, 0] if bias.ndim == 5 else bias
    queries, keys = site.pairs.queries, site.pairs.keys
    return bias_HNN.detach().double().mean(0)[queries.num_prefix + patch, keys.num_prefix :].unflatten(0, keys.hw)


def has_own_biases(bias: Tensor) -> bool:
    """True if images or windows have biases of their own, which no one map shows."""
    return bias.ndim == 5 and bias.shape[0] * bias.shape[1] > 1


def centre_bias(bias: Tensor, site: Site) -> Tensor:
    """That of the central query, as the paper fits it: its minimum is subtracted."""
    queries = site.pairs.queries
    row, column = centre_token(queries.hw)
    of_keys = bias_of(bias, site, row * queries.width + column)
    return of_keys - of_keys.min()


def _bias(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    return None if has_own_biases(tensor) else centre_bias(tensor, place.site).cpu().numpy()


@measure(
    'tokens; R²: share',
    'Gaussian Attention Bias, Fig. 6 and Table 1',
    'bias',
    reduce=_bias,
    estimate=of_model,
    axes=('layer',),
    most=1,
    draw='biases',
)
def position_bias(seen: Seen) -> Arrays:
    """Gaussian fitted to the position bias of the central query, host and plugs together, mean over heads, minimum
    subtracted: its standard deviations, and the share of the variance that it explains."""
    biases = {layer: bias for layer, bias in seen.found.get('bias', {}).items() if bias is not None}
    maps = {i: bias for i, bias in biases.items() if prod(bias.shape) >= PARAMETERS and min(bias.shape) >= 2}
    fits = {layer: fit_gaussian(bias) for layer, bias in maps.items()}
    values = {
        value: by_block({layer: getattr(fit, name) for layer, fit in fits.items()}, seen.run.blocks)
        for value, name in FITTED.items()
    }
    return values | {f'{SHOWN}block {layer:02}': bias.astype(np.float32) for layer, bias in maps.items()}


LEARNED = (position_bias, learned)
