"""Values and expressions as the text of a config."""

import inspect
import math
from collections.abc import Mapping


class Code(str):
    """An expression of a config, such as the name of a variable."""


def text(value, indent: int = 0) -> str:
    """A value as a config has it, in lines of 120 columns."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, Mapping):
        are_names = all(isinstance(key, str) and key.isidentifier() for key in value)
        opening, closing = ('dict(', ')') if are_names else ('{', '}')
        entries = [(f'{key}=' if are_names else f'{text(key)}: ', entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple):
        opening, closing = '[]' if isinstance(value, list) else '()'
        entries = [('', entry) for entry in value]
    else:
        is_endless = isinstance(value, float) and not math.isfinite(value)
        return f"float('{value}')" if is_endless else repr(named(value))
    line = ', '.join(name + text(entry) for name, entry in entries)
    line += ',' if isinstance(value, tuple) and len(value) == 1 else ''
    if len(line) + indent < 100 and '\n' not in line:
        return f'{opening}{line}{closing}'
    inner = ' ' * (indent + 4)
    lines = ''.join(f'{inner}{name}{text(entry, indent + 4)},\n' for name, entry in entries)
    return f'{opening}\n{lines}{" " * indent}{closing}'


def config_text(settings: Mapping) -> str:
    """A whole config, as a file that mmengine reads back to equal values; a class becomes its path."""
    return ''.join(f'{key} = {text(value)}\n' for key, value in settings.items())


def named(value):
    """A class or function as its path; another value as it is."""
    is_code = inspect.isclass(value) or inspect.isroutine(value)
    return f'{value.__module__}.{value.__qualname__}' if is_code else value
