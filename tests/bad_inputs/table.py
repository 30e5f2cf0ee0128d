"""Tables of cases."""

from collections.abc import Mapping
from dataclasses import dataclass

from bad_inputs.making import Make


@dataclass(frozen=True)
class Row:
    """One bad input.

    Attributes:
        title: What is wrong.
        command: What the user types, without `python tools/...`.
        error: What must be in the message, a regular expression; it names the culprit.
        make: Makes it bad.
        status: The exit status.
    """

    title: str
    command: str
    error: str
    make: Make = lambda folder: None
    status: int = 2


#: The cases of a command, by title; the key is the command, or the command and its exit status if this is not 2. A case
#: is a message, or a tuple: what replaces {} in the command, the message, and what makes the input bad.
Table = Mapping[str | tuple[str, int], Mapping[str, str | tuple[str | Make, ...]]]


def rows(table: Table) -> tuple[Row, ...]:
    return tuple(_row(key, title, entry) for key, cases in table.items() for title, entry in cases.items())


def _row(key: str | tuple[str, int], title: str, entry: str | tuple[str | Make, ...]) -> Row:
    command, status = (key, 2) if isinstance(key, str) else key
    values = [entry] if isinstance(entry, str) else list(entry)
    if '{}' in command:
        command = command.replace('{}', values.pop(0))
    return Row(title, command, *values, status=status)
