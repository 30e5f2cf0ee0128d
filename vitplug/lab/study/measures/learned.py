"""Measures of the model alone: what its plugs have learned (alpha, A, sigma, Lambda), and its position biases."""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from vitplug.attention import Site
from vitplug.hosting import PluggedModel
from vitplug.statistics.images import Arrays

from ..measure import SHOWN, Run, Seen, by_block, measure, nothing, of_model
from ..places import Place
from .fields import FITTED, centre_token, fit_gaussian


def learned_statistics(backbone: PluggedModel) -> dict[str, dict[int, float]]:
    """``{'gab.sigma, mean': {block index: number}}`` of all learned values of a backbone's plugs, as they act.

    Also ``min`` and ``max`` of several numbers, and ``quantile ratio`` of a Lambda, the 10 % quantile of its size over
    the 90 % quantile (*Context Broadcasting*, analysis of CB_S): 1 if all channels are scaled alike, near 0 if some are
    scaled far more than others. A clamped alpha is clamped; values that blocks share are given at each.
    """
    statistics: dict[str, dict[int, float]] = {}
    for name, of_blocks in backbone.learned_values().items():
        for block, value in of_blocks.items():
            blocks = range(len(backbone.plugged_blocks())) if block is None else [block]
            value = value.detach().double()
            found = dict(mean=value.mean())
            if value.numel() > 1:
                found |= dict(min=value.min(), max=value.max())
            if name.split('.')[1] == 'Lambda':  # of 'cb.Lambda.mlp_end'
                low, high = value.abs().flatten().quantile(value.new_tensor([0.1, 0.9]))
                found['quantile ratio'] = low / high  # NaN if nearly all are 0
            for statistic, number in found.items():
                statistics.setdefault(f'{name}, {statistic}', {}).update(dict.fromkeys(blocks, float(number)))
    return statistics


OF_MODEL = dict(estimate=of_model, most=1)


@measure('as learned', 'ReViT, Fig. 10; Gaussian Attention Bias; Context Broadcasting, Fig. 6', **OF_MODEL)
def learned(seen: Seen) -> Arrays:
    """What plugs have learned, as it acts: alpha, A, sigma and Lambda of each block, over heads or channels; values
    that blocks share are given at each; the quantile ratio of a Lambda is its 10 % over its 90 % quantile."""
    statistics = learned_statistics(seen.run.backbone) if seen.run.is_plugged else {}
    if not statistics:
        raise ValueError('it has no plug with learned values')
    return {value: by_block(numbers, seen.run.blocks) for value, numbers in statistics.items()}


# --- position biases ---


def biases_of(bias: Tensor, site: Site, patches: Sequence[int]) -> Tensor | None:
    """The position bias of some queries, mean over heads: ``(len(patches), h, w)`` on the keys' grid.

    ``bias`` and ``site`` are intermediates of a block: the host's table and all plugs in the bias socket, ``(H or 1,
    Nq, Nk)`` or ``(B, W, H, Nq, Nk)``. ``patches`` are numbers of patches of their window, in reading order. None where
    images or windows have biases of their own, which no one map shows.
    """
    if bias.ndim == 5 and bias.shape[0] * bias.shape[1] > 1:
        return None
    queries, keys = site.pairs.queries, site.pairs.keys
    mean_NN = bias.reshape(-1, *bias.shape[-2:]).detach().double().mean(0)
    return mean_NN[torch.tensor(patches) + queries.num_prefix, keys.num_prefix :].unflatten(1, keys.hw)


def centre_bias(bias: Tensor, site: Site) -> Tensor | None:
    """That of the central query, as the paper fits it: its minimum is subtracted."""
    queries = site.pairs.queries
    row, column = centre_token(queries.hw)
    of_keys = biases_of(bias, site, [row * queries.width + column])
    return None if of_keys is None else of_keys[0] - of_keys.min()


TABLE = 'Gaussian Attention Bias, Fig. 6 and Table 1'


def _of_centre(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor | None:
    return centre_bias(tensor, Site(place.layout, place.key_layout))


@measure('tokens; R²: share', TABLE, 'bias', reduce=_of_centre, draw='fitted', **OF_MODEL)
def position_bias(seen: Seen) -> Arrays:
    """Gaussian fitted to the position bias of the central query, host and plugs together, mean over heads, minimum
    subtracted: its standard deviations, and the share of the variance that it explains."""
    maps = seen.found['bias']
    fits = {layer: fit_gaussian(bias) for layer, bias in maps.items()}
    values = {name: by_block({layer: fit[name] for layer, fit in fits.items()}, seen.run.blocks) for name in FITTED}
    return values | {f'{SHOWN}block {layer:02}': bias.float().cpu().numpy() for layer, bias in maps.items()}


def _of_shown(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[int, np.ndarray] | None:
    """Of the patches that the paper shows, of the image or of a window: 0, 1, 2 and the last."""
    site = Site(place.layout, place.key_layout)
    patches = 0, 1, 2, prod(site.pairs.queries.hw) - 1
    biases = biases_of(tensor, site, patches)
    return None if biases is None else dict(zip(patches, biases.float().cpu().numpy(), strict=True))


FIGURE = 'Gaussian Attention Bias, Fig. 5, and its supplement'


@measure('logit', FIGURE, 'bias', reduce=_of_shown, estimate=nothing, most=1, draw='maps')
def bias_rows(seen: Seen) -> Arrays:
    """Position bias of the first, second, third and last patch to all patches, host and plugs together, mean over
    heads, of the first block with one."""
    first = list(seen.found['bias'].items())[:1]
    return {f'block {layer}|patch {patch}': bias for layer, biases in first for patch, bias in biases.items()}
