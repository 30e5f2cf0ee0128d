"""Measures of the model alone: what its plugs have learned (alpha, A, sigma, Lambda), and its position biases."""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from vitplug.attention import Site
from vitplug.hosting import PluggedModel
from vitplug.statistics.images import Arrays

from ..gaussian_fit import fit_gaussian
from ..measure import SHOWN, Run, Seen, by_block, measure, nothing, of_model
from ..places import Place
from .fields import FITTED, centre_token

LOW, HIGH = 0.1, 0.9


def learned_statistics(backbone: PluggedModel) -> dict[str, dict[int, float]]:
    """Statistics of all learned values of a backbone's plugs, as they act: a clamped alpha is clamped.

    Returns:
        ``{'gab.sigma, mean': {block index: number}}``, also ``min`` and ``max`` of several numbers, ``quantile ratio``
        of a Lambda, and ``pixels``, the mean in pixels of a sigma if tokens of all its blocks are squares of one size.
        Values that blocks share are given at each.
    """
    statistics: dict[str, dict[int, float]] = {}
    for name, of_blocks in backbone.learned_values().items():
        symbol = name.split('.')[1]  # 'Lambda' of 'cb.Lambda.mlp_end'
        for block, value in of_blocks.items():
            blocks = list(range(len(backbone.plugged_blocks()))) if block is None else [block]
            value = value.detach().double()
            found = dict(mean=value.mean())
            if value.numel() > 1:
                found |= dict(min=value.min(), max=value.max())
            if symbol == 'sigma' and len(strides := _strides(backbone, blocks)) == 1:
                found['pixels'] = found['mean'] * strides.pop()
            if symbol == 'Lambda':
                found['quantile ratio'] = quantile_ratio(value)
            for statistic, number in found.items():
                statistics.setdefault(f'{name}, {statistic}', {}).update(dict.fromkeys(blocks, float(number)))
    return statistics


def quantile_ratio(scale: Tensor) -> float:
    """The 10 % quantile of ``|Lambda|`` over its 90 % quantile (*Context Broadcasting*, analysis of CB_S).

    1 if all channels are scaled alike, near 0 if some are scaled far more than others; NaN if nearly all are 0.
    """
    scale = scale.detach().double().abs().flatten()
    low, high = scale.quantile(scale.new_tensor([LOW, HIGH])).tolist()
    return low / high if high > 0 else float('nan')


def _strides(backbone: PluggedModel, blocks: Sequence[int]) -> set[float]:
    """Pixels from one token to the next, of queries or keys, whichever are closer, at the configured image size."""
    size = tuple(tokens * step for tokens, step in zip(backbone.patch_resolution, backbone.image_stride, strict=True))
    grids = [[pixels.stride for _, pixels in backbone.place_maps(index, size)] for index in blocks]
    return set(np.min(grids, axis=1).flatten().tolist())


def _no_values(run: Run) -> str:
    return '' if run.backbone.learned_values() else 'it has no plug with learned values'


OF_MODEL = dict(estimate=of_model, axes=('layer',), most=1)
VALUES = 'ReViT, Fig. 10; Gaussian Attention Bias; Context Broadcasting, Fig. 6'


@measure('as learned', VALUES, why_not=_no_values, **OF_MODEL)
def learned(seen: Seen) -> Arrays:
    """What plugs have learned, as it acts: alpha, A, sigma and Lambda of each block, over heads or channels; values
    that blocks share are given at each; the quantile ratio of a Lambda is its 10 % over its 90 % quantile."""
    statistics = learned_statistics(seen.run.backbone)
    return {value: by_block(numbers, seen.run.blocks) for value, numbers in statistics.items()}


# --- position biases ---


def biases_of(bias: Tensor, site: Site, patches: Sequence[int]) -> Tensor | None:
    """The position bias of some queries, mean over heads: ``(len(patches), h, w)`` on the keys' grid.

    Args:
        bias: Intermediate ``'bias'`` of a block, ``(H or 1, Nq, Nk)`` or ``(B, W, H, Nq, Nk)``: the host's table and
            all plugs in the bias socket.
        site: Intermediate ``'site'`` of the block.
        patches: Indices of the queries among the patches of their window, in reading order.

    Returns:
        None where images or windows have biases of their own, which no one map shows.
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


def _of_centre(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    bias = centre_bias(tensor, place.site)
    return None if bias is None else bias.cpu().numpy()


@measure(
    'tokens; R²: share',
    'Gaussian Attention Bias, Fig. 6 and Table 1',
    'bias',
    reduce=_of_centre,
    draw='biases',
    **OF_MODEL,
)
def position_bias(seen: Seen) -> Arrays:
    """Gaussian fitted to the position bias of the central query, host and plugs together, mean over heads, minimum
    subtracted: its standard deviations, and the share of the variance that it explains."""
    maps = {layer: bias for layer, bias in seen.found.get('bias', {}).items() if bias is not None}
    fits = {layer: fit_gaussian(bias) for layer, bias in maps.items()}
    values = {
        value: by_block({layer: getattr(fit, name) for layer, fit in fits.items()}, seen.run.blocks)
        for value, name in FITTED.items()
    }
    return values | {f'{SHOWN}block {layer:02}': bias.astype(np.float32) for layer, bias in maps.items()}


def _shown_patches(site: Site) -> tuple[int, ...]:
    """The patches of one window, or of the image, that the paper shows: 0, 1, 2 and the last."""
    return 0, 1, 2, prod(site.pairs.queries.hw) - 1


def _of_shown(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    biases = biases_of(tensor, place.site, _shown_patches(place.site))
    return None if biases is None else biases.float().cpu().numpy()


def untrained(run: Run) -> nn.Module:
    """The backbone of a run with new weights, drawn with seed 0."""
    from mmengine.registry import MODELS

    from vitplug.checkpoints.pretrained import loads_checkpoint

    settings = dict(run.cfg.model.backbone)
    if loads_checkpoint(settings.get('init_cfg')):
        del settings['init_cfg']
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = MODELS.build(settings)
        backbone.init_weights()
    return backbone.to(run.device).eval()


FIGURE = dict(estimate=nothing, slow=True, most=1, draw='rows_of_maps')


@measure('logit', 'Gaussian Attention Bias, Fig. 5, and its supplement', 'bias', reduce=_of_shown, **FIGURE)
def bias_rows(seen: Seen) -> Arrays:
    """Position bias of the first, second, third and last patch to all patches, host and plugs together, mean over
    heads, of the first block with one; untrained: new weights of the same config."""
    layers = sorted(layer for layer, bias in seen.found.get('bias', {}).items() if bias is not None)
    if not layers:
        return {}
    first, run, place = layers[0], seen.run, seen.place(layers[0])
    _, fresh = untrained(run).forward_intermediates(seen.inputs, ('bias',), layers=[first])
    both = dict(trained=seen.found['bias'][first], untrained=_of_shown(run, 'bias', fresh['bias'][first], place))
    return {
        f'{state}, block {first}|patch {patch}': bias
        for state, biases in both.items()
        for patch, bias in zip(_shown_patches(place.site), biases, strict=True)
    }


LEARNED = (position_bias, learned, bias_rows)
