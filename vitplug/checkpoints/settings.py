"""Reads the training config in a checkpoint without running it, and compares configs by meaning."""

import ast
import inspect
from collections import Counter
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
    text = meta.get('cfg')
    return parse_settings(text) if isinstance(text, str) else {}


def parse_settings(text: str) -> dict[str, Any]:
    """The settings in the text of mmengine's `Config.pretty_text`; see :func:`read_settings`."""
    try:
        statements = ast.parse(text).body
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


def compare(before: Any, after: Any, find_class: Callable[[str], type | None], path: str = '') -> Iterator[tuple]:
    """The settings in which two configs differ, by meaning.

    Lists equal tuples, the order of plugs is ignored, and a missing setting has its class's default.

    Args:
        before: Settings of the first config.
        after: Settings of the second config.
        find_class: Returns the class of a ``type`` in the second config, or None.
        path: Prefix for the names of the settings.

    Yields:
        Name, such as ``model.backbone.plugs.Refiner.expansion``, value before and value after; :data:`ABSENT` for a
        missing value.
    """
    before, after = _canonical(before, path), _canonical(after, path)
    if isinstance(before, dict) and isinstance(after, dict):
        same_class = before.get('type') == after.get('type') and isinstance(after.get('type'), str)
        owner = find_class(after['type']) if same_class else None
        for key in {**before, **after}:
            # The arguments of a class have defaults, other keys do not.
            default = find_default(owner, key) if owner else ABSENT
            pair = before.get(key, default), after.get(key, default)
            yield from compare(*pair, find_class, f'{path}.{key}' if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from compare(*pair, find_class, f'{path}.{index}')
    elif before != after:
        yield path, before, after


def _canonical(value: Any, path: str) -> Any:
    value = list(value) if isinstance(value, tuple) else value
    if path.endswith('plugs') and isinstance(value, list):
        types = Counter(plug.get('type') for plug in value if isinstance(plug, dict))
        return {_plug_key(index, plug, types): plug for index, plug in enumerate(value)}
    return value


def _plug_key(index: int, plug: Any, types: Mapping[str, int]) -> str | int:
    """A key that does not depend on the order of plugs: their type, and their blocks where a type occurs again."""
    kind = plug.get('type', index) if isinstance(plug, dict) else index
    layers = _canonical(plug.get('layers', ''), '') if isinstance(plug, dict) else ''
    return f'{kind}{layers}' if types.get(kind, 0) > 1 else kind


def find_default(owner: type, key: str) -> Any:
    """The default of a constructor's argument, from the class or its bases; :data:`ABSENT` if it has none."""
    for kind in inspect.getmro(owner):
        parameter = inspect.signature(kind.__init__).parameters.get(key)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return ABSENT


def list_changes(changes: Sequence[tuple], count: int = 5) -> str:
    """The first differences found by :func:`compare`, for a message."""
    lines = [
        f'{name} was {", is ".join(ABSENT if value is ABSENT else repr(value) for value in pair)}'
        for name, *pair in changes[:count]
    ]
    return '; '.join(lines) + (f'; and {len(changes) - count} more' if len(changes) > count else '')
