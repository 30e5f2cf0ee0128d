"""How converters of data sets end; without OpenMMLab, as they need none."""

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def converter_errors(parser: ArgumentParser) -> Iterator[None]:
    """Ends a converter of data sets in one line: exit status 2 for a wrong setting, 1 for missing or bad files."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
    except (ImportError, OSError) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')
