"""Position tables of checkpoints and of the model, resized to another grid or window."""

from collections.abc import Iterable, Sequence
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn

from vitplug.compat import is_exporting

#: How tables are resized, see :func:`resize_position_map`.
INTERPOLATE_MODES = ('bicubic', 'bilinear', 'bicubic-antialias', 'bicubic-offset')
#: Numbers of prefix tokens that the table of a checkpoint may have: DeiT III has no position for its class token, the
#: distilled DeiT one for each of its two tokens.
PREFIXES = (0, 1, 2)


def is_same(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether two grids are known to be the same; the sizes of an exported graph, which may be any, are not."""
    if is_exporting() and not all(isinstance(side, int) for side in target):
        return False
    return tuple(source) == tuple(target)


def resize_position_map(table: Tensor, target: tuple[int, int], mode: str) -> Tensor:
    """Resizes a table ``(1, D, h, w)``; gives ``(1, D, target h, target w)``.

    Args:
        table: The table.
        target: The wanted grid.
        mode: ``'bicubic'`` or ``'bilinear'``; ``'bicubic-antialias'``, which averages where the table shrinks, as timm
            and DINOv2 with registers; or ``'bicubic-offset'``, whose scale is that of a grid larger by 0.1, as DINOv2
            without registers and DINO.
    """
    if is_same(table.shape[2:], target):
        return table
    method, _, variant = mode.partition('-')
    settings: dict[str, Any] = dict(size=tuple(target))
    if variant == 'antialias':
        settings['antialias'] = True
    if variant == 'offset':
        sides = zip(target, table.shape[2:], strict=True)
        settings = dict(scale_factor=tuple(float((wanted + 0.1) / side) for wanted, side in sides))
    return F.interpolate(table.float(), mode=method, align_corners=False, **settings).to(table.dtype)


def resize_position_table(
    table: Tensor, source: tuple[int, int], target: tuple[int, int], mode: str, num_prefix: int
) -> Tensor:
    """The same of a table ``(1, prefix + h * w, D)``; the prefix stays as it is."""
    if is_same(source, target):
        return table
    prefix, grid = table[:, :num_prefix], table[:, num_prefix:]
    image = resize_position_map(grid.transpose(1, 2).unflatten(2, tuple(source)), target, mode)
    return torch.cat((prefix, image.flatten(2).transpose(1, 2)), dim=1)


def find_grid(count: int, target: tuple[int, int], prefixes: Iterable[int]) -> tuple[tuple[int, int], int] | None:
    """The grid that a table with ``count`` entries is taken for, and its prefix tokens.

    It is the wanted one or a square, with one of these numbers of prefix tokens, the likeliest first; None if neither.
    """
    for prefix in prefixes:
        entries = max(count - prefix, 0)
        if entries == target[0] * target[1]:
            return tuple(target), prefix
        if entries and isqrt(entries) ** 2 == entries:
            return (isqrt(entries), isqrt(entries)), prefix
    return None


def fit_stored_positions(backbone: nn.Module, state_dict, prefix, *_) -> None:
    """A hook of loading: makes a checkpoint's table of positions, ``POSITIONS``, fit the grid and prefix tokens.

    Surplus entries of prefix tokens are dropped, missing ones are 0, as if the token had no position.

    Raises:
        ValueError: If the table is neither of the backbone's grid nor of a square one.
    """
    key, target, num_prefix = prefix + backbone.POSITIONS, tuple(backbone.patch_resolution), backbone.num_placed_tokens
    if key not in state_dict or backbone.pos_embed is None:
        return
    table = state_dict[key]
    found = find_grid(table.shape[1], target, (num_prefix, *PREFIXES))
    if found is None:
        raise ValueError(
            f'{key}: the checkpoint has {table.shape[1]} entries, which are no square grid plus {num_prefix} prefix '
            f'tokens; resize it to the grid {target} before loading'
        )
    source, given = found
    if given != num_prefix:
        kept = F.pad(table[:, : min(given, num_prefix)], (0, 0, 0, max(0, num_prefix - given)))
        table = torch.cat((kept, table[:, given:]), dim=1)
    if source != target:
        print_log(f'resizing {key} from a {source[0]}x{source[1]} grid to {target[0]}x{target[1]}', 'current')
    state_dict[key] = resize_position_table(table, source, target, backbone.interpolate_mode, num_prefix)


def fit_bias_table(table: Tensor, wanted: Tensor, name: str) -> Tensor:
    """Resizes a checkpoint's relative position table ``((2w-1)^2, H)`` to this model's window.

    Raises:
        ValueError: If the table is that of no square window.
    """
    if table.shape == wanted.shape:
        return table
    source, target = isqrt(table.shape[0]), isqrt(wanted.shape[0])
    if source * source != table.shape[0] or source % 2 == 0:
        raise ValueError(f'{name}: the checkpoint has {table.shape[0]} entries, which belong to no square window')
    image = table.T.unflatten(1, (source, source))[None]
    return resize_position_map(image, (target, target), 'bicubic')[0].flatten(1).T
