"""The config of a checkpoint's training: read without running it, and compared by meaning."""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

ABSENT = 'not set'


def read_settings(meta: Mapping) -> dict[str, Any]:
    """The settings in a checkpoint's ``meta['cfg']``, which mmengine writes as Python text.

    The text is parsed, never run: literals, ``dict(...)`` and containers of them become values; any other expression,
    such as a class, is kept as its source text.

    Args:
        meta: See :func:`~vitplug.checkpoints.files.find_meta`.

    Returns:
        The settings; empty if there are none or if the text is not such a config.
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


def compare(before: Any, after: Any, find_class: Callable[[str], type | None]) -> list[tuple[str, Any, Any]]:
    """The settings in which two configs differ, by meaning.

    Lists equal tuples, the order of plugs is ignored, and a missing setting has its class's default.

    Args:
        before: Settings of the first config.
        after: Settings of the second config.
        find_class: Returns the class of a ``type``, or None.

    Returns:
        Name, such as ``model.backbone.plugs.Refiner.expansion``, value before and value after; :data:`ABSENT` for a
        missing value.
    """
    before, after = (dict(_values(cfg, find_class)) for cfg in (before, after))
    pairs = [(name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in {**before, **after}]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _values(cfg: Any, find_class: Callable[[str], type | None], path: str = '') -> Iterator[tuple[str, Any]]:
    """The values of nested settings and of the defaults of their classes, by dotted names."""
    if isinstance(cfg, Mapping):
        kind = cfg.get('type')
        entries = {**defaults(find_class(kind) if isinstance(kind, str) else None), **cfg}.items()
    elif isinstance(cfg, list | tuple):
        entries = enumerate(cfg) if not path.endswith('.plugs') else zip(_plug_names(cfg), cfg, strict=True)
    else:
        yield path.removeprefix('.'), cfg
        return
    for name, value in entries:
        yield from _values(value, find_class, f'{path}.{name}')


def _plug_names(plugs: Sequence[Any]) -> list[str]:
    """Names that do not depend on the order of plugs: their type, and their blocks where a type occurs again."""
    kinds = [plug.get('type') if isinstance(plug, Mapping) else plug for plug in plugs]
    layers = [plug.get('layers', '') if isinstance(plug, Mapping) else '' for plug in plugs]
    layers = [list(blocks) if isinstance(blocks, tuple) else blocks for blocks in layers]
    return [f'{kind}{blocks if kinds.count(kind) > 1 else ""}' for kind, blocks in zip(kinds, layers, strict=True)]


def defaults(owner: type | None) -> dict[str, Any]:
    """The defaults of a constructor's arguments, of the class and its bases."""
    found: dict[str, Any] = {}
    for kind in reversed(inspect.getmro(owner) if owner else ()):
        parameters = inspect.signature(kind.__init__).parameters.values()
        found |= {each.name: each.default for each in parameters if each.default is not each.empty}
    return found


def list_changes(changes: Sequence[tuple], count: int = 5) -> str:
    """The first differences found by :func:`compare`, for a message."""
    lines = [
        f'{name} was {", is ".join(ABSENT if value is ABSENT else repr(value) for value in pair)}'
        for name, *pair in changes[:count]
    ]
    return '; '.join(lines) + (f'; and {len(changes) - count} more' if len(changes) > count else '')
