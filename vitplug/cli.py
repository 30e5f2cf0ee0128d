"""The command `vitplug`: every tool by its name, such as `vitplug train CONFIG`."""

import os
import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from . import __version__
from .commands import COMMANDS
from .errors import one_line_errors
from .spelling import hint

# The variable that makes torch.load read tensors only, whatever its caller says, and the one that overrides it.
ONLY_TENSORS, NOT_ONLY_TENSORS = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


def main() -> int | None:
    """Runs the command that the arguments of the process name; returns its exit status."""
    name, *rest = sys.argv[1:] or ['--help']
    if name in ('-h', '--help', 'help'):
        lines = [f'  {one:12}{command.help}' for one, command in COMMANDS.items()]
        print('usage: vitplug COMMAND ...', '', *lines, '', '`vitplug COMMAND --help` shows its options.', sep='\n')
        return 0
    if name == '--version':
        print(f'vitplug {__version__}')
        return 0
    sys.argv = [f'vitplug {name}', *rest]
    return run(name, rest)


def run(name: str, argv: Sequence[str]) -> int | None:
    """Runs a command; errors that its user can mend end in one line on stderr."""
    prepare()  # before torch is loaded
    with one_line_errors():
        if name not in COMMANDS:
            advice = hint(name.lower(), COMMANDS) or '; `vitplug --help` lists all commands'
            raise ValueError(f'there is no command {name!r}{advice}')
        return resolve_name(f'vitplug.{COMMANDS[name].function}')(argv)


def prepare() -> None:
    """Prepares this process and those that it starts; to be called before torch is loaded.

    Files that a config names run no code, unless torch's own variable says so.

    Waiting OpenMP threads spin, 300,000 rounds by default. On a shared machine they take CPU time from the threads they
    wait for, and a step takes several times as long; after 1,000 rounds they sleep. Variables of the user are kept.
    """
    if NOT_ONLY_TENSORS not in os.environ:
        os.environ[ONLY_TENSORS] = '1'
    if 'OMP_WAIT_POLICY' not in os.environ:
        os.environ.setdefault('GOMP_SPINCOUNT', '1000')
    # mmengine gives OpenCV one thread in each data worker that is forked; spawned workers read this.
    os.environ.setdefault('OPENCV_FOR_THREADS_NUM', '1')
