"""Plugs as a command line names them: ``none``, ``cb``, ``gab+residual(alpha=0.25)``."""

import ast
import difflib
import re

from vitplug.backbones.plug_configs import build_plugs
from vitplug.runs.new_experiment import PLUGS

NONE = 'none'


def parse_plugs(text: str) -> list[dict]:
    """The ``plugs`` argument of a backbone for a text.

    Args:
        text: ``none``, or plugs joined by ``+``: a short name such as ``gab``, or a registered type, with arguments in
            brackets as Python has them, such as ``residual(alpha=0.25, layers='upper')``.

    Raises:
        ValueError: If the text cannot be read, a plug is unknown or refuses an argument; names it.
    """
    if text.strip() == NONE:
        return []
    try:
        tree = ast.parse(_without_hyphens(text.strip()), mode='eval')
    except SyntaxError as error:
        raise ValueError(
            f"--plugs: {text!r} cannot be read: expected a text such as 'gab+residual(alpha=0.25)'"
        ) from error
    plugs = [_plug(node, text) for node in _summands(tree.body)]
    try:
        build_plugs(plugs)
    except (ValueError, TypeError) as error:
        raise ValueError(f'--plugs: {text!r}: {error}') from error
    return plugs


def label_of(text: str) -> str:
    """A text of plugs without superfluous spaces."""
    return re.sub(r'\s*([+(,=)])\s*', r'\1', text.strip())


def _without_hyphens(text: str) -> str:
    """Short names as names of Python."""
    for name in PLUGS:
        text = text.replace(name, name.replace('-', '_'))
    return text


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _plug(node: ast.expr, text: str) -> dict:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name) or call.args or not all(keyword.arg for keyword in call.keywords):
        raise ValueError(
            f'--plugs: {ast.unparse(node)!r} in {text!r} is no plug: expected a name such as gab, or a name with '
            'arguments such as residual(alpha=0.25)'
        )
    settings = dict(type=_type(call.func.id, text))
    for keyword in call.keywords:
        try:
            settings[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError as error:
            raise ValueError(
                f'--plugs: {keyword.arg}={ast.unparse(keyword.value)} in {text!r}: expected a plain value; put '
                'quotes around text'
            ) from error
    return settings


def _type(name: str, text: str) -> str:
    """The registered type of a short name; other names are left to the registry, except close ones."""
    short = {known.replace('-', '_'): kind for known, kind in PLUGS.items()}
    if name in short:
        return short[name]
    close = difflib.get_close_matches(name, [*PLUGS, NONE], n=1)
    if name.islower():
        hint = f'; did you mean {close[0]}?' if close else ''
        raise ValueError(f'--plugs: {name!r} in {text!r} is unknown: choose from {NONE}, {", ".join(PLUGS)}{hint}')
    return name
