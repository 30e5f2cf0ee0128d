"""The config of a checkpoint's training: read without running it, and compared with a model and another config."""

import ast
import os
from collections.abc import Iterator, Mapping
from math import isqrt, prod
from typing import Any

from torch import Tensor, nn

from vitplug.hosting import PluggedModel

from .position_tables import PREFIXES, find_grid

ABSENT = 'not set'
BACKBONE = 'backbone.'


def read_settings(content: Mapping) -> dict[str, Any]:
    """The settings in a checkpoint's ``meta['cfg']``, which mmengine writes as Python text.

    The text is parsed, never run: literals, ``dict(...)`` and lists of them become values; any other expression, such
    as a class, is kept as its source text. Empty if there are none or if the text is not such a config.
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
    table = state.get(('' if backbone is model else BACKBONE) + getattr(backbone, 'POSITIONS', ''))
    if table is not None and table.ndim == 3 and backbone.pos_embed is not None:
        _check_grid(backbone, table, [side for side in _as_list(_get(cfg, 'img_size')) if isinstance(side, int)], path)


def _get(cfg: object, *keys: str) -> object:
    """A setting in nested dicts, None where there is none."""
    for key in keys:
        cfg = cfg.get(key) if isinstance(cfg, Mapping) else None
    return cfg


def _as_list(value: object) -> list:
    return list(value) if isinstance(value, list | tuple) else [value] if value else []


def _check_grid(backbone: PluggedModel, table: Tensor, size: list[int], path: str | os.PathLike) -> None:
    """Refuses a table of positions of another grid with as many entries, such as 2 x 8 instead of 8 x 2 or 4 x 4.

    Loading knows a table by its number of entries alone; the size of images in the config of its training tells the
    grid. Without one, it is a square where that is possible.
    """
    found = find_grid(table.shape[1], backbone.patch_resolution, (backbone.num_placed_tokens, *PREFIXES))
    if found is None:
        return  # refused in loading
    taken, prefix = found
    entries = table.shape[1] - prefix
    source = tuple(backbone.pixels((size[0], size[-1])).hw) if size else (isqrt(entries), isqrt(entries))
    if prod(source) == entries and source != taken:
        trained = f'was trained on images of {size[0]}x{size[-1]}' if size else 'does not say for which images it is'
        raise ValueError(
            f'{path} {trained}, and its table of positions is of a {source[0]}x{source[1]} grid, not of '
            f"{taken[0]}x{taken[1]}: set img_size to the checkpoint's, or resize the table before loading"
        )
