"""Statistics of what plugs have learned, block by block: alpha, A, sigma, Lambda.

Tensors come from :meth:`~vitplug.hosting.PluggedModel.learned_values`, as they act: a clamped alpha is
clamped. Quantiles interpolate linearly.
"""

from collections.abc import Mapping

from torch import Tensor

from vitplug.hosting import PluggedModel

LOW, HIGH = 0.1, 0.9
#: Statistics by name of the value, such as ``gab.sigma``, block (None: the whole network) and name.
Statistics = Mapping[str, Mapping[int | None, Mapping[str, float]]]


def learned_statistics(backbone: PluggedModel) -> Statistics:
    """Statistics of all learned values of a backbone's plugs.

    Returns:
        ``{'gab.sigma': {block index: {'mean': ...}}}``; see :func:`statistics_of`. ``gab.sigma`` also has ``'pixels'``,
        the mean in pixels: of the rows and of the columns if they differ, ``'pixels_y'`` and ``'pixels_x'``.
    """
    statistics: dict[str, dict[int | None, dict[str, float]]] = {}
    for name, by_block in backbone.learned_values().items():
        for block, value in by_block.items():
            of_block = statistics_of(name, value)
            if _symbol(name) == 'sigma':
                of_block |= _in_pixels(of_block['mean'], backbone, block)
            statistics.setdefault(name, {})[block] = of_block
    return statistics


def statistics_of(name: str, value: Tensor) -> dict[str, float]:
    """Mean, least and largest of a learned value; of a Lambda, the spread over its channels, too.

    Args:
        name: Plug and symbol, such as ``'gab.sigma'``.
        value: The value.

    Returns:
        ``'mean'``, ``'min'``, ``'max'``, ``'count'``; ``'quantile_ratio'`` of a Lambda, see :func:`quantile_ratio`.
    """
    value = value.detach().double()
    statistics = dict(mean=value.mean().item(), min=value.min().item(), max=value.max().item(), count=value.numel())
    return statistics | (dict(quantile_ratio=quantile_ratio(value)) if _symbol(name) == 'Lambda' else {})


def quantile_ratio(scale: Tensor) -> float:
    """The 10 % quantile of ``|Lambda|`` over its 90 % quantile (*Context Broadcasting*, analysis of CB_S).

    1 if all channels are scaled alike, near 0 if some are scaled far more than others; NaN if nearly all are 0.
    """
    low, high = scale.detach().double().abs().flatten().quantile(scale.new_tensor([LOW, HIGH]).double()).tolist()
    return low / high if high > 0 else float('nan')


def _symbol(name: str) -> str:
    """The symbol of a learned value: ``'Lambda'`` of ``'cb.Lambda.mlp_end'``."""
    return name.split('.')[1]


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
