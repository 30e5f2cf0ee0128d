"""mmengine's list of how each parameter was initialised, hundreds of lines, kept off the terminal of a script."""

import logging
import re

# What mmengine logs of each parameter where no log file takes the list: name, shape and initialisation.
PARAMETER = re.compile(r'\n\S+ - torch\.Size\(\[[\d, ]*\]\): \n')


def hide_parameter_lists(logger: logging.Logger) -> None:
    """Drops these lines from a logger. The log file of a training has the list as ever."""
    if _is_other not in logger.filters:
        logger.addFilter(_is_other)


def _is_other(record: logging.LogRecord) -> bool:
    return not PARAMETER.match(record.getMessage())
