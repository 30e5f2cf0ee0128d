"""What converters of data sets share: how they end, read images and write files. They need no OpenMMLab."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from vitplug.files.whole import write_whole


@contextmanager
def converter_errors(parser: ArgumentParser) -> Iterator[None]:
    """Ends a converter of data sets in one line: exit status 2 for a wrong setting, 1 for missing or bad files."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
    except (ImportError, OSError) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')


def convert_folder(
    convert: Callable[[str, str], object], description: str, holds: str, out: str, argv: Sequence[str] | None
) -> None:
    """A command that converts one folder to another.

    Args:
        convert: Called with both folders.
        description: What it does, for `--help`.
        holds: What the first folder is.
        out: The second folder, where the user names none.
        argv: The command line; None for the process's own.
    """
    parser = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument('source', metavar='FOLDER', help=holds)
    parser.add_argument('--out', default=out, metavar='FOLDER', help='folder to make')
    args = parser.parse_args(argv)
    with converter_errors(parser):
        convert(args.source, args.out)


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


def opened(path: Path) -> Image.Image:
    """An image, read as a whole.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        image = Image.open(path)
        image.load()
        return image
    except (OSError, UnidentifiedImageError) as error:
        raise ValueError(f'{path} is no image that can be read: {error}') from error


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Writes a PNG file, or finds that it is there.

    Args:
        path: The file; its folder is made.
        pixels: uint8 array of shape (H, W) or (H, W, 3).

    Raises:
        FileExistsError: If it exists with another content.
        ValueError: If what is there cannot be read.
    """
    if path.exists():
        if not np.array_equal(np.array(opened(path)), pixels):
            raise FileExistsError(f'{path} exists with another content and is not overwritten: move it away')
        return
    write_whole(path, partial(Image.fromarray(pixels).save, format='PNG'))


def write_new(path: Path, data: bytes) -> bool:
    """Writes a file as a whole, or finds that it is there.

    Returns:
        True if it was not there.

    Raises:
        FileExistsError: If it exists with another content.
    """
    if path.exists():
        if path.read_bytes() != data:
            raise FileExistsError(f'{path} exists with another content and is not overwritten: move it away')
        return False
    write_whole(path, lambda part: part.write_bytes(data))
    return True
