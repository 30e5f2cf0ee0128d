"""The config of a checkpoint's training: read without running it, and compared with another."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = 'not set'


def read_settings(meta: Mapping) -> dict[str, Any]:
    """The settings in a checkpoint's ``meta['cfg']``, which mmengine writes as Python text.

    The text is parsed, never run: literals, ``dict(...)`` and containers of them become values; any other expression,
    such as a class, is kept as its source text. Empty if there are none or if the text is not such a config.
    """
    try:
        statements = ast.parse(meta.get('cfg')).body
        return {statement.targets[0].id: _read(statement.value) for statement in statements}
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
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
