"""Errors of a command in one line on stderr, with an exit status."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import NoReturn

from mmengine.logging import MMLogger

from vitplug.config.text import printable

from .stops import BadSample, Interrupted, TrainingStopped
from .traceback_part import failing_file

# Errors that wrong settings cause, mmengine's included.
SETTINGS = (
    ValueError,
    OSError,
    ImportError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    RuntimeError,
    UnpicklingError,
)
# Errors whose message says enough without their type.
CLEAR = (ValueError, OSError, ImportError, TrainingStopped)


@contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of some kinds into one line on stderr and exit status 2."""
    try:
        yield
    except kinds as error:
        fail(error)


@contextmanager
def interruptible(message: str) -> Iterator[None]:
    """Turns Ctrl-C into one line and exit status 75.

    Args:
        message: What is kept, and how to go on.

    Raises:
        Interrupted: On Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(f'interrupted; {message}') from error


@contextmanager
def one_line_ends(message: str) -> Iterator[None]:
    """Ends a command that measures in one line, with exit status 2 for a wrong setting, 66 for a checkpoint that cannot
    be read and 75 for Ctrl-C.

    Args:
        message: What an interrupted call keeps, and how to go on.
    """
    with one_line_errors(*SETTINGS), interruptible(message):
        yield


def status_of_skipped(skipped: int, given: int, what: str) -> int:
    """Exit status 0; 65 and a line on stderr if some inputs, which are named already, could not be used."""
    if not skipped:
        return 0
    print(f'error: {skipped} of {given} {what} cannot be used; they are named above', file=sys.stderr)
    return BadSample.status


def fail(error: Exception, part: str = '') -> NoReturn:
    """Ends with one line on stderr and exit status 2, or that of a stop.

    The traceback goes to the log file, if there is one yet.

    Args:
        error: The error.
        part: Where in the model.
    """
    kind = '' if isinstance(error, CLEAR) else f'{type(error).__name__}: '
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    status = error.status if isinstance(error, TrainingStopped) else 2
    place = part or failing_file(error)
    say(printable(place + kind + ' '.join(text.split())) + _log_traceback(error))
    sys.exit(status)


def say(reason: str) -> None:
    """Says on stderr why this process ends; of several processes, which one."""
    who = f'process {os.environ.get("RANK", 0)}: ' if int(os.environ.get('WORLD_SIZE', '1')) > 1 else ''
    print('error:', who + reason, file=sys.stderr, flush=True)


def _log_traceback(error: Exception) -> str:
    """Writes a traceback into the log files and names them, or nothing where none is needed or there are none."""
    logger = MMLogger.get_current_instance()
    files = [handler for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    trace = (type(error), error, error.__traceback__)
    for file in files:
        file.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 0, 'nothing was run', (), trace))
    return f' (more in {", ".join(os.path.relpath(file.baseFilename) for file in files)})' if files else ''
