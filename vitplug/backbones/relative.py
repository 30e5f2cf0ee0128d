"""Relative positions of *BEiT: BERT Pre-Training of Image Transformers* (2022), and how their table is resized."""

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn

from vitplug.attention import OffsetBias, PairBias, Site
from vitplug.attention.bias import DenseBias
from vitplug.checkpoints.position_tables import resize_position_map
from vitplug.compat import register_load_state_dict_pre_hook

# Entries behind those of offsets: class token to patches, patches to class token, class token to itself.
_OF_CLASS = 3


class RelativeTable(nn.Module):
    """A bias for each offset, and three for pairs with the class token, in timm's layout.

    ``relative_position_bias_table`` is ``((2 h - 1) (2 w - 1) + 3, H)``. On another grid it is resized.

    Args:
        grid: Rows and columns of tokens that the table is made for.
        mode: ``'geometric'``, or a mode of :func:`~vitplug.checkpoints.position_tables.resize_position_map`.
        has_class_token: Whether the first token is a class token.
        num_heads: ``H``.
    """

    def __init__(self, grid: tuple[int, int], mode: str, has_class_token: bool, num_heads: int):
        super().__init__()
        self.size = tuple(2 * side - 1 for side in grid)
        self.mode, self.has_class_token = mode, has_class_token
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.size[0] * self.size[1] + _OF_CLASS, num_heads)
        )
        register_load_state_dict_pre_hook(self, _fit_table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts without bias."""
        nn.init.zeros_(self.relative_position_bias_table)

    def forward(self, site: Site) -> tuple[PairBias, ...]:
        """The biases of the pairs of a map."""
        pairs = site.pairs
        table, of_class = self.relative_position_bias_table.T.split((self.size[0] * self.size[1], _OF_CLASS), dim=1)
        table = resize_offsets(table.unflatten(1, self.size), pairs.table_size, self.mode)
        offsets = OffsetBias(table, pairs)
        if not self.has_class_token:
            return (offsets,)
        # Tokens of plugs lie between the class token and the patches, and have no bias.
        count, rest = pairs.queries.height * pairs.queries.width, pairs.queries.num_tokens - 1
        to_patches, from_patches, itself = of_class.unsqueeze(-1).split(1, dim=1)
        row = F.pad(to_patches.expand(-1, -1, count), (rest - count, 0))
        column = F.pad(from_patches.expand(-1, count, -1), (0, 0, 1 + rest - count, 0))
        first_row = F.pad(torch.cat((itself, row), dim=2), (0, 0, 0, rest))
        return offsets, DenseBias((first_row + F.pad(column, (0, rest)))[None, None])


def resize_offsets(table_Hyx: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """A table of offsets ``(H, 2 h - 1, 2 w - 1)`` for another grid.

    ``'geometric'`` places the entries at distances that grow geometrically from the middle, so that near offsets keep
    their values and far ones spread over the larger grid, and interpolates linearly between them.
    """
    if tuple(table_Hyx.shape[1:]) == tuple(size):
        return table_Hyx
    if mode != 'geometric':
        return resize_position_map(table_Hyx[None], size, mode)[0]
    rows, columns = (
        _weights(source, target).to(table_Hyx) for source, target in zip(table_Hyx.shape[1:], size, strict=True)
    )
    return rows @ table_Hyx @ columns.T


def _weights(source: int, target: int) -> Tensor:
    """Weights ``(target, source)`` of the entries along an axis, both of odd length."""
    places = torch.tensor(_places(source // 2, target // 2), dtype=torch.float64)
    wanted = torch.arange(-(target // 2), target // 2 + 1, dtype=torch.float64)
    wanted = wanted.clamp(places[0], places[-1])
    above = torch.searchsorted(places, wanted).clamp(1, source - 1)
    part = (wanted - places[above - 1]) / (places[above] - places[above - 1])
    weights = F.one_hot(above - 1, source) * (1 - part[:, None]) + F.one_hot(above, source) * part[:, None]
    return weights


def _places(count: int, reach: int) -> list[float]:
    """Distances of ``count`` entries on each side of the middle, the last at about ``reach``."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        low, high = (low, ratio) if (1 - ratio**count) / (1 - ratio) > reach else (ratio, high)
    distances = [(1 - ratio**index) / (1 - ratio) for index in range(1, count + 1)]
    return [*(-distance for distance in reversed(distances)), 0.0, *distances]


def _fit_table(module: RelativeTable, state_dict, prefix, *_) -> None:
    """A hook of loading: resizes the table of a square grid."""
    key = f'{prefix}relative_position_bias_table'
    table = state_dict.get(key)
    if table is None or table.shape[0] == len(module.relative_position_bias_table):
        return
    side = round((table.shape[0] - _OF_CLASS) ** 0.5)
    if side * side + _OF_CLASS != table.shape[0] or side % 2 == 0:
        raise ValueError(f'{key}: the checkpoint has {table.shape[0]} entries, which belong to no square grid')
    print_log(f'resizing {key} from {side}x{side} offsets to {module.size[0]}x{module.size[1]}', logger='current')
    offsets, of_class = table.T.split((side * side, _OF_CLASS), dim=1)
    resized = resize_offsets(offsets.unflatten(1, (side, side)), module.size, module.mode)
    state_dict[key] = torch.cat((resized.flatten(1), of_class), dim=1).T
