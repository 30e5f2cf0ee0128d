"""The config with which a checkpoint was trained: read from its text without running it, and compared by meaning."""

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .files import shown

LONGEST_TEXT = 1_000_000  # characters
ABSENT = 'not set'


def read_settings(meta: Mapping) -> dict[str, Any]:
    """The settings in a checkpoint's meta, where mmengine writes them as Python, ``meta['cfg']``.

    The text is parsed, never run: literals, ``dict(...)`` and containers of them are read, anything else, such as a
    class, is kept as its source text.

    Args:
        meta: See :func:`~vitplug.checkpoints.files.find_meta`.

    Returns:
        The settings; empty where there are none, or where the text is no such config.
    """
    text = meta.get('cfg')
    return parse_settings(text) if isinstance(text, str) else {}


def parse_settings(text: str) -> dict[str, Any]:
    """The settings in a text of mmengine's, `Config.pretty_text`; see :func:`read_settings`."""
    if len(text) > LONGEST_TEXT:
        return {}
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

    Lists and tuples are the same, plugs have no order, and a setting that is left out is its class's default.

    Args:
        before: Settings of the first config.
        after: Settings of the second.
        find_class: Finds the class behind a ``type`` of the second; None where there is none.
        path: What stands before the names of the settings.

    Yields:
        Name, such as ``model.backbone.plugs.Refiner.expansion``, value before and value after;
        :data:`ABSENT` where one has none.
    """
    before, after = _canonical(before, path), _canonical(after, path)
    if isinstance(before, dict) and isinstance(after, dict):
        same_class = before.get('type') == after.get('type') and isinstance(after.get('type'), str)
        owner = find_class(after['type']) if same_class else None
        for key in {**before, **after}:
            # Inside of a class, arguments; elsewhere, names that mean nothing where they are absent.
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
    """The default of an argument, of the class or of the one to which it hands further arguments.

    :data:`ABSENT` where it has none.
    """
    for kind in inspect.getmro(owner):
        parameter = inspect.signature(kind.__init__).parameters.get(key)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return ABSENT


def list_changes(changes: Sequence[tuple], count: int = 5) -> str:
    """The first few of the differences that :func:`compare` finds, for a message."""
    lines = [f'{shown(name)} was {_written(before)}, is {_written(after)}' for name, before, after in changes[:count]]
    return '; '.join(lines) + (f'; and {len(changes) - count} more' if len(changes) > count else '')


def _written(value: Any) -> str:
    return ABSENT if value is ABSENT else shown(repr(value))
