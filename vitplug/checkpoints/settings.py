"""The config of a checkpoint's training: read without running it, and compared with a model and another config."""

import ast
import os
from collections.abc import Iterator, Mapping
from math import isqrt, prod
from typing import Any

from torch import Tensor, nn

from vitplug.hosting import PluggedModel

from .formats import BACKBONE
from .position_tables import PREFIXES, find_grid

ABSENT = 'not set'


def read_settings(content: Mapping) -> dict[str, Any]:
    """The settings in a checkpoint's ``meta['cfg']``, which mmengine writes as Python text.

    The text is parsed, never run: literals, dicts and lists of them become values; any other expression, such as a
    class, is kept as its source text. Empty if there are none or if the text is not such a config.
    """
    try:
        statements = ast.parse(content['meta']['cfg']).body
        return {statement.targets[0].id: _read(statement.value) for statement in statements}
    except (SyntaxError, LookupError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return {}


def _read(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id='dict'), args=[], keywords=pairs):
            return {pair.arg: _read(pair.value) for pair in pairs}
        case ast.Call(func=ast.Name(id='dict'), args=[ast.Dict() as pairs], keywords=[]):
            return _read(pairs)
        case ast.Dict(keys=keys, values=values):
            return {_read(key): _read(value) for key, value in zip(keys, values, strict=True)}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_read(item) for item in items]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def differences(before: Mapping, after: Mapping) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configs differ, such as ``model.backbone.plugs.0.sigma``, before and after.

    Lists equal tuples; a setting that one of them lacks is :data:`ABSENT` there.
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    pairs = {name: (old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**old, **new}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(cfg: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """The values of nested settings by dotted names."""
    if not isinstance(cfg, Mapping | list | tuple):
        yield path.removeprefix('.'), cfg
        return
    for name, value in cfg.items() if isinstance(cfg, Mapping) else enumerate(cfg):
        yield from _flat(value, f'{path}.{name}')


# --- what no tensor shows ---


def check_settings(model: nn.Module, state: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike) -> None:
    """Refuses weights of a host, or of a model around it, where no tensor shows that they are of another network.

    Raises:
        ValueError: If the config of their training states other heads, another activation, another epsilon or another
            grid of tokens; names both.
    """
    backbone = getattr(model, 'backbone', model)
    if not isinstance(backbone, PluggedModel):
        return
    cfg = _get(settings, 'model', 'backbone')
    arch = _get(cfg, 'arch') or cfg
    arch = getattr(backbone, 'arch_zoo', {}).get(arch) if isinstance(arch, str) else arch
    activation = _get(cfg, 'layer_cfgs', 'act_cfg', 'type') or _get(cfg, 'act_cfg', 'type') or ''
    stated = dict(
        num_heads=_as_list(_get(arch, 'num_heads')),
        activation=_as_list(activation.rpartition('.')[2]),
        eps=_as_list(_get(cfg, 'norm_cfg', 'eps')),
    )
    kinds = {type(module).__name__ for module in backbone.modules()}
    own = dict(
        num_heads=_as_list(getattr(backbone, 'arch_settings', {}).get('num_heads')),
        activation=sorted(kind for kind in kinds if kind.endswith(('GELU', 'ReLU'))),
        eps=sorted({module.eps for module in backbone.modules() if isinstance(module, nn.LayerNorm)}),
    )
    for name, values in stated.items():
        # A backbone may have further activations and norms.
        if values and own[name] and not (values == own[name] if name == 'num_heads' else {*values} <= {*own[name]}):
            raise ValueError(
                f'{path} was trained with {name}={values}, which its tensors do not show, and the backbone has '
                f'{own[name]}: set it as in the config of that training'
            )
    size = _stated_size(settings)
    if size and (count := _count_positions(model, state)):
        _check_grid(backbone, count, size, path)


def _get(cfg: object, *keys: str) -> object:
    """A setting in nested dicts, None where there is none."""
    for key in keys:
        cfg = cfg.get(key) if isinstance(cfg, Mapping) else None
    return cfg


def _as_list(value: object) -> list:
    return list(value) if isinstance(value, list | tuple) else [value] if value else []


def check_unstated_grid(
    model: nn.Module, state: Mapping[str, Tensor], settings: Mapping, path: str | os.PathLike
) -> None:
    """Refuses a table of positions that may be square for another grid, where its file does not say for which images.

    A whole model's weights with every tensor of its shape need no such guess.

    Raises:
        ValueError: Names both grids.
    """
    if (count := _count_positions(model, state)) and not _stated_size(settings):
        _check_grid(getattr(model, 'backbone', model), count, [], path)


def _stated_size(settings: Mapping) -> list[int]:
    """The size of images in the config of a training; empty if it has none, or an expression."""
    cfg = _get(settings, 'model', 'backbone')
    size = _as_list(_get(cfg, 'pretrain_img_size') or _get(cfg, 'img_size'))
    return size if all(isinstance(side, int) for side in size) else []


def _count_positions(model: nn.Module, state: Mapping[str, Tensor]) -> int:
    """The number of entries in the table of positions that a host will read; 0 for none."""
    backbone = getattr(model, 'backbone', model)
    table = state.get(('' if backbone is model else BACKBONE) + getattr(backbone, 'POSITIONS', ''))
    if table is None or table.ndim != 3 or getattr(backbone, 'pos_embed', None) is None:
        return 0
    return table.shape[1]


def _check_grid(backbone: PluggedModel, count: int, size: list[int], path: str | os.PathLike) -> None:
    """Refuses a table of positions of another grid with as many entries, such as 2 x 8 instead of 8 x 2 or 4 x 4.

    Loading knows a table by its number of entries alone; the size of images in the config of its training tells the
    grid. Without one, it is a square where that is possible.
    """
    found = find_grid(count, backbone.patch_resolution, (backbone.num_placed_tokens, *PREFIXES))
    if found is None:
        return  # refused in loading
    taken, prefix = found
    square = (isqrt(count - prefix), isqrt(count - prefix))
    source = _trained_grid(backbone, count, (size[0], size[-1])) if size else square
    if source == taken or (not size and prod(square) != count - prefix):
        return
    trained = f'was trained on images of {size[0]}x{size[-1]}' if size else 'does not say for which images it is'
    grid = f'a {source[0]}x{source[1]} grid' if source else 'none of the patches of the backbone'
    raise ValueError(
        f'{path} {trained}, and its table of positions is of {grid}, not of {taken[0]}x{taken[1]}: set img_size to the '
        "checkpoint's, or resize the table before loading"
    )


def _trained_grid(backbone: PluggedModel, count: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """The grid of a table with so many entries for images of a size; None if they do not fit.

    mmseg and mmdet count whole patches only, the hosts by their own arguments padded ones, too.
    """
    rows, columns = backbone.image_stride
    whole = (size[0] // rows * rows, size[1] // columns * columns)
    grids = [backbone.pixels(pixels).hw for pixels in (size, whole)]
    prefixes = (backbone.num_placed_tokens, *PREFIXES)
    return next((grid for prefix in prefixes for grid in grids if prod(grid) + prefix == count), None)
