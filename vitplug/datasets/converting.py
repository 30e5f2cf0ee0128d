"""What converters of data sets share; without OpenMMLab, as they need none."""

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


def add_scene_options(parser: ArgumentParser, out: str, num_train: int, num_val: int) -> None:
    """Adds the options of data sets of made scenes: ``out`` is the folder and the rest the number of scenes."""
    parser.add_argument('--out', default=out, metavar='FOLDER', help='folder to make')
    parser.add_argument('--seed', type=int, default=0, help='seed of the split, if any, and of all images, at least 0')
    for split, number in (('train', num_train), ('val', num_val)):
        parser.add_argument(
            f'--num-{split}', type=int, default=number, metavar='N', help=f'{split} scenes for each of ADE20K and COCO'
        )
    parser.add_argument(
        '--overwrite', action='store_true', help='replace a data set that was made with other arguments'
    )
