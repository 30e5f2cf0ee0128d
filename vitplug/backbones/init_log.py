"""mmengine's list of how each parameter was initialised, hundreds of lines, kept off the terminal of a script."""

import logging
import re

# mmengine's log of each parameter where there is no log file: name, shape and initialisation.
PARAMETER = re.compile(r'\n\S+ - torch\.Size\(\[[\d, ]*\]\): \n')


def hide_parameter_lists(logger: logging.Logger) -> None:
    """Drops these lines from a logger. The log file of a training keeps the list."""
    if _is_other not in logger.filters:
        logger.addFilter(_is_other)


def _is_other(record: logging.LogRecord) -> bool:
    return not PARAMETER.match(record.getMessage())
