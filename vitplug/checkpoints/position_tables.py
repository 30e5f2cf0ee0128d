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
#: Numbers of prefix tokens that the table of a checkpoint may have.
PREFIXES = (0, 1, 2)


def is_same(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether two grids are known to be the same; the sizes of an exported graph, which may be any, are not."""
    if is_exporting() and not all(isinstance(side, int) for side in target):
        return False
    return tuple(source) == tuple(target)


def resize_position_table(
    table: Tensor, source: tuple[int, int], target: tuple[int, int], mode: str, num_prefix: int
) -> Tensor:
    """Resizes a position table ``(1, prefix + h * w, D)`` from one grid to another; the prefix stays as it is."""
    if is_same(source, target):
        return table
    prefix, grid = table[:, :num_prefix], table[:, num_prefix:]
    image = resize_position_map(grid.transpose(1, 2).unflatten(2, tuple(source)), target, mode)
    return torch.cat((prefix, image.flatten(2).transpose(1, 2)), dim=1)


def resize_position_map(table: Tensor, target: tuple[int, int], mode: str) -> Tensor:
    """The same of a table ``(1, D, h, w)``; gives ``(1, D, target h, target w)``.

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


def fit_position_table(
    table: Tensor,
    target: tuple[int, int],
    mode: str,
    num_prefix: int,
    name: str,
    other_prefixes: Iterable[int] = (),
) -> Tensor:
    """Makes a checkpoint's position table fit this model's grid and prefix tokens.

    Args:
        table: ``(1, prefix + h * w, D)``; its grid is square, or this model's.
        target: This model's grid ``(h, w)``.
        mode: Interpolation mode.
        num_prefix: This model's entries before the grid's.
        name: Name of the table in messages.
        other_prefixes: Numbers of such entries the checkpoint may have instead. Surplus ones at the end are
            dropped, missing ones are 0, as if the token had no position.

    Returns:
        ``(1, num_prefix + h * w, D)``.

    Raises:
        ValueError: If the table fits no square grid.
    """
    found = find_grid(table.shape[1], target, (num_prefix, *other_prefixes))
    if found is None:
        raise ValueError(
            f'{name}: the checkpoint has {table.shape[1]} entries, which are no square grid plus '
            f'{num_prefix} prefix tokens; resize it to the grid {tuple(target)} before loading'
        )
    source, prefix = found
    if prefix != num_prefix:
        kept = F.pad(table[:, : min(prefix, num_prefix)], (0, 0, 0, max(0, num_prefix - prefix)))
        table = torch.cat((kept, table[:, prefix:]), dim=1)
    if source != tuple(target):
        print_log(f'resizing {name} from a {source[0]}x{source[1]} grid to {target[0]}x{target[1]}', logger='current')
    return resize_position_table(table, source, target, mode, num_prefix)


def find_grid(count: int, target: tuple[int, int], prefixes: Iterable[int]) -> tuple[tuple[int, int], int] | None:
    """The grid that a table with ``count`` entries is taken for, and its prefix tokens.

    It is the wanted one or a square, with one of these numbers of prefix tokens, the likeliest first; None if neither.
    """
    for prefix in prefixes:
        if count - prefix == target[0] * target[1]:
            return tuple(target), prefix
        if square := square_grid(count - prefix):
            return square, prefix
    return None


def square_grid(entries: int) -> tuple[int, int] | None:
    """The square grid with this number of entries, None if there is none."""
    side = isqrt(max(entries, 0))
    return (side, side) if side > 0 and side * side == entries else None


def fit_bias_table(table: Tensor, wanted: Tensor, name: str) -> Tensor:
    """Resizes a checkpoint's relative position table ``((2w-1)^2, H)`` to this model's window.

    Raises:
        ValueError: If the table is that of no square window.
    """
    if table.shape == wanted.shape:
        return table
    source, target = (round(t.shape[0] ** 0.5) for t in (table, wanted))
    if source * source != table.shape[0] or source % 2 == 0:
        raise ValueError(f'{name}: the checkpoint has {table.shape[0]} entries, which belong to no square window')
    if source == target:
        return table
    print_log(f'resizing {name} from {source}x{source} offsets to {target}x{target}', logger='current')
    image = table.T.unflatten(1, (source, source))[None].float()
    image = F.interpolate(image, size=(target, target), mode='bicubic', align_corners=False)
    return image[0].flatten(1).T.to(table.dtype)


def fit_stored_positions(backbone: nn.Module, state_dict, prefix, *_) -> None:
    """A hook of loading: makes a checkpoint's table of positions, ``POSITIONS``, fit the backbone's tokens and grid.

    It may have another number of prefix tokens: DeiT III has no position for its class token, the distilled DeiT one
    for each of its two tokens.
    """
    key, mode = prefix + backbone.POSITIONS, backbone.interpolate_mode
    if key in state_dict and backbone.pos_embed is not None:
        state_dict[key] = fit_position_table(
            state_dict[key], backbone.patch_resolution, mode, backbone.num_placed_tokens, key, PREFIXES
        )
