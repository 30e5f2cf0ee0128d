"""The command `vitplug`: every tool by its name, such as `vitplug train CONFIG`."""

import os
import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from . import __version__
from .commands import COMMANDS, STARTED_AS
from .errors import one_line_errors
from .process import prepare
from .spelling import hint


def main(argv: Sequence[str] | None = None, program: str = 'vitplug') -> int | None:
    """Runs a command.

    Args:
        argv: Its name and its arguments; None for those of the process.
        program: What the user has started.

    Returns:
        The exit status: that of the command, 2 if there is no such command.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ('-h', '--help', 'help'):
        print(overview(program))
        return 0
    if argv[0] == '--version':
        print(f'vitplug {__version__}')
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        advice = hint(name.lower(), COMMANDS) or f'; `{program} --help` lists all commands'
        print(f'{program}: error: there is no command {name!r}{advice}', file=sys.stderr)
        return 2
    os.environ[STARTED_AS] = program
    sys.argv = [f'{program} {name}', *rest]  # the usage lines of argparse begin with it
    return run(name, rest)


def run(name: str, argv: Sequence[str]) -> int | None:
    """Runs a command that exists; errors that its user can mend end in one line on stderr."""
    prepare()  # before torch is loaded
    with one_line_errors():
        return resolve_name(f'vitplug.{COMMANDS[name].function}')(argv)


def overview(program: str) -> str:
    """All commands, a line each."""
    lines = [f'  {name:12}{command.help}' for name, command in COMMANDS.items()]
    return '\n'.join(
        (f'usage: {program} COMMAND ...', '', *lines, '', f'`{program} COMMAND --help` shows its options.')
    )
