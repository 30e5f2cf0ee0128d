"""Values and expressions as the text of a config."""

from collections.abc import Mapping


class Code(str):
    """An expression of a config, such as the name of a variable."""

    __slots__ = ()


def text(value, indent: int = 0) -> str:
    """A value as a config has it, in lines of 120 columns."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, Mapping):
        opening, closing = 'dict(', ')'
        entries = [(f'{key}=', entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple):
        opening, closing = '[]' if isinstance(value, list) else '()'
        entries = [('', entry) for entry in value]
    else:
        return repr(value)
    line = ', '.join(name + text(entry) for name, entry in entries)
    line += ',' if isinstance(value, tuple) and len(value) == 1 else ''
    if len(line) + indent < 100 and '\n' not in line:
        return f'{opening}{line}{closing}'
    inner = ' ' * (indent + 4)
    lines = ''.join(f'{inner}{name}{text(entry, indent + 4)},\n' for name, entry in entries)
    return f'{opening}\n{lines}{" " * indent}{closing}'
