"""Dicts given as values of `--cfg-options`, and the settings that say the same."""

import ast
import shlex
from collections.abc import Iterator

from vitplug.plugs.text import EXAMPLE


def advice_for_dicts(pair: str) -> str:
    """What to write in place of a setting whose value is, or holds, a dict; '' for other settings."""
    key, _, value = pair.partition('=')
    try:
        node = ast.parse(value.strip('\'" '), mode='eval').body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a word, such as a path
        return ''
    if not _holds_dict(node):
        return ''
    settings = ' '.join(shlex.quote(setting) for setting in _plain_settings(key, node))
    advice = f'a dict is no value here: give its settings one by one, {settings}' if settings else 'a dict is no value'
    if isinstance(node, ast.List | ast.Tuple):
        advice += ', if the list in the config has these entries; else write a config that inherits by _base_'
        if key.endswith('plugs'):
            advice += f', or the plugs as a text, such as {key}={EXAMPLE!r}'
    return advice


def _entries(node: ast.expr) -> list[tuple[str, ast.expr]] | None:
    """Keys and values of ``dict(...)`` and ``{...}``; None for any other expression."""
    if isinstance(node, ast.Dict):
        return [(_plain(key), value) for key, value in zip(node.keys, node.values, strict=True) if key]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict':
        return [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    return None


def _holds_dict(node: ast.expr) -> bool:
    is_list = isinstance(node, ast.List | ast.Tuple)
    return any(map(_holds_dict, node.elts)) if is_list else _entries(node) is not None


def _plain_settings(key: str, node: ast.expr) -> Iterator[str]:
    """The settings of nested dicts with their dotted names, as :class:`OptionsAction` takes them."""
    if not _holds_dict(node):
        yield f'{key}={_plain(node)}'.replace(' ', '')
        return
    entries = _entries(node)
    for name, value in enumerate(node.elts) if entries is None else entries:
        yield from _plain_settings(f'{key}.{name}', value)


def _plain(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
