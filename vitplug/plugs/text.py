"""Plugs as text, the same in configs, in Python and on every command line: ``none``, ``cb``,
``gab+residual(alpha=0.25)``."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..spelling import hint
from . import PLUG_TYPES

NONE = 'none'
EXAMPLE = 'gab+residual(alpha=0.25)'
SHORT_NAMES = dict(sorted((plug.short_name or plug.name.replace('_', '-'), plug.__name__) for plug in PLUG_TYPES))
PLUGS_HELP = f"plugs, such as '{EXAMPLE}' or {NONE}; short names are {', '.join(SHORT_NAMES)}"


def listed_plugs(plugs: str | Sequence, name: str = 'plugs') -> list:
    """The ``plugs`` argument of a backbone as a list of dicts.

    Args:
        plugs: A text, or a list of texts, of dicts (which may have a short name as ``type``), and of other objects.
        name: What messages call the argument.

    Raises:
        ValueError: If this is neither, or a text cannot be read.
    """
    if isinstance(plugs, str):
        return parse_plugs(plugs, name)
    if isinstance(plugs, Mapping) or not isinstance(plugs, Sequence):
        raise ValueError(
            f"{name}={plugs!r}: expected a text such as '{EXAMPLE}', or a list such as "
            "[dict(type='ContextBroadcast')]; an empty list is the plain backbone"
        )
    return [plug for entry in plugs for plug in _entry(entry, name)]


def _entry(entry: Any, name: str) -> list:
    if isinstance(entry, str):
        return parse_plugs(entry, name)
    is_short = isinstance(entry, Mapping) and isinstance(entry.get('type'), str) and entry['type'] in SHORT_NAMES
    return [{**entry, 'type': SHORT_NAMES[entry['type']]}] if is_short else [entry]


def parse_plugs(text: str, name: str = 'plugs') -> list[dict]:
    """The plugs of a text, as dicts.

    Args:
        text: ``none``, or plugs joined by ``+``: a short name such as ``gab``, a registered type, or a path such as
            ``my_plugs.MixedHeads``, with arguments in brackets as Python has them, such as
            ``residual(alpha=0.25, layers='upper')``. A comma joins as well.
        name: What messages call the argument.

    Raises:
        ValueError: If the text cannot be read, or a short name is unknown; quotes the text.
    """
    if text.strip() == NONE:
        return []
    source = _without_hyphens(text.strip())
    try:
        compile(source, text, 'eval')  # refuses what `ast.parse` takes, such as an argument that is given twice
        plugs = list(_joined(ast.parse(source, mode='eval').body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f'{name}: {text!r} cannot be read: expected a text such as {EXAMPLE!r} ({error})') from error
    try:
        return [_plug(node, text) for node in plugs]
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error


def label_of(text: str) -> str:
    """A text of plugs without superfluous spaces."""
    return re.sub(r'\s*([+(,=)])\s*', r'\1', text.strip())


def text_of(plug: Mapping) -> str:
    """The text of a plug given as a dict."""
    kind = str(plug['type']).removeprefix('vitplug.')
    short = next((name for name, known in SHORT_NAMES.items() if known == kind), kind)
    settings = ','.join(f'{key}={value!r}' for key, value in plug.items() if key not in ('type', '_scope_'))
    return label_of(f'{short}({settings})' if settings else short)


def _without_hyphens(text: str) -> str:
    """Short names as names of Python; texts in quotes stay."""
    return re.sub(r"""'[^']*'|"[^"]*"|(?<=[a-z])-(?=[a-z])""", lambda found: '_' if found[0] == '-' else found[0], text)


def _joined(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts: Sequence[ast.expr] = (node.left, node.right)
    elif isinstance(node, ast.Tuple | ast.List):
        parts = node.elts
    else:
        yield node
        return
    for part in parts:
        yield from _joined(part)


def _plug(node: ast.expr, text: str) -> dict:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not _is_name(call.func) or call.args or any(keyword.arg in (None, 'type') for keyword in call.keywords):
        raise ValueError(f'{ast.unparse(node)!r} in {text!r} is no plug: expected a plug such as {EXAMPLE}')
    settings = {}
    for keyword in call.keywords:
        try:
            settings[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError) as error:
            value = f'{keyword.arg}={ast.unparse(keyword.value)}'
            raise ValueError(f'{value} in {text!r}: expected a plain value; put quotes around text') from error
    return {'type': _type(ast.unparse(call.func), text), **settings}


def _is_name(node: ast.expr) -> bool:
    """True for a name, and for the path of a class such as ``my_plugs.MixedHeads``."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _type(name: str, text: str) -> str:
    """The registered type of a short name; names with capitals and paths are left to the registry."""
    short = {known.replace('-', '_'): kind for known, kind in SHORT_NAMES.items()}
    if name in short or not name.islower():
        return short.get(name, name)
    typed = name.replace('_', '-')
    name = typed if typed in text else name
    near = hint(name, SHORT_NAMES)
    raise ValueError(f'{name!r} in {text!r} is unknown: choose from {", ".join(SHORT_NAMES)}, or {NONE} alone{near}')
