"""How a command ends at an error that its user can mend: one line on stderr, the traceback in the log file."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# What torch puts before the traceback of a loader's worker.
OF_A_WORKER = 'Original Traceback (most recent call last)'
# What mmengine's registries say of types that they do not know, and they and Python of arguments that a class lacks.
OF_A_REGISTRY = (' is not in the ', 'class `', '__init__() got an unexpected keyword argument ', 'must contain the key')


class TrainingStopped(RuntimeError):
    """A training or a test ended before its time; the message says why, and what to do."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns errors that a user can mend into one line on stderr; others keep their traceback.

    The exit status is 2 for a wrong setting or file, 1 for a stop, 130 for Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        _end('interrupted', 130)
    except Exception as error:
        reason = clear_message(error)
        if reason is None:
            raise
        _end(reason + _log_traceback(error), 1 if isinstance(error, TrainingStopped) else 2)


def clear_message(error: Exception) -> str | None:
    """An error as one line; None where only the traceback tells what is wrong."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    from_registry = any(words in text for words in OF_A_REGISTRY)
    if not (from_registry or isinstance(error, ValueError | OSError | ImportError | TrainingStopped)):
        return None
    if OF_A_WORKER in text:  # behind the last frame, its line, and the name of the class
        text = re.split(r'\n(?=\S)', text.rpartition('\n  File ')[2], maxsplit=1)[-1].partition(': ')[2]
    return printable(' '.join(text.split()))


def printable(text: str) -> str:
    """A text without line breaks and other characters that a terminal acts on; names of files can have them."""
    return ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _end(reason: str, status: int) -> None:
    """Says why this process ends; of several processes, which one."""
    who = f'process {os.environ.get("RANK", 0)}: ' if int(os.environ.get('WORLD_SIZE', '1')) > 1 else ''
    print('error:', who + reason, file=sys.stderr, flush=True)
    sys.exit(status)


def _log_traceback(error: Exception) -> str:
    """Writes a traceback into mmengine's log files and names them; there are none before a runner is built."""
    if 'mmengine.logging' not in sys.modules:
        return ''
    logger = sys.modules['mmengine.logging'].MMLogger.get_current_instance()
    files = [handler for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    trace = (type(error), error, error.__traceback__)
    for file in files:
        file.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 0, 'stopped by', (), trace))
    return f' (more in {", ".join(os.path.relpath(file.baseFilename) for file in files)})' if files else ''
