"""Commands that make data sets: how they read images and write files, and how they end."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def converter_parser(description: str) -> ArgumentParser:
    """A parser whose help has the defaults."""
    return ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)


@contextmanager
def converter_errors(parser: ArgumentParser) -> Iterator[None]:
    """Ends a command in one line: exit status 2 for a wrong setting, 1 for missing or bad files."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
    except (ImportError, OSError) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')


def convert_folder(
    convert: Callable[[Path, Path], Any], description: str, holds: str, out: str, argv: Sequence[str] | None
) -> None:
    """A command that converts one folder to another.

    Args:
        convert: Called with both folders.
        description: What it does, for `--help`.
        holds: What the first folder is.
        out: The second folder, where the user names none.
        argv: The command line; None for the process's own.
    """
    parser = converter_parser(description)
    parser.add_argument('source', metavar='FOLDER', type=Path, help=holds)
    parser.add_argument('--out', default=out, metavar='FOLDER', type=Path, help='folder to make')
    args = parser.parse_args(argv)
    with converter_errors(parser):
        convert(args.source, args.out)


def make_scenes_with(
    make: Callable[..., Any], parser: ArgumentParser, scenes: tuple[int, int], out: str, argv: Sequence[str] | None
) -> None:
    """A command that makes scenes.

    Args:
        make: Called with the folder and the options of the parser by name.
        parser: Has the options of this data set.
        scenes: Numbers of training and validation scenes, where the user names none.
        out: The folder, where the user names none.
        argv: The command line; None for the process's own.
    """
    parser.add_argument('--out', default=out, metavar='FOLDER', help='folder to make')
    parser.add_argument('--seed', type=int, default=0, help='seed of the split, if any, and of all images, at least 0')
    for split, number in zip(('train', 'val'), scenes, strict=True):
        parser.add_argument(
            f'--num-{split}', type=int, default=number, metavar='N', help=f'{split} scenes for each of ADE20K and COCO'
        )
    args = vars(parser.parse_args(argv))
    with converter_errors(parser):
        make(args.pop('out'), num_scenes=(args.pop('num_train'), args.pop('num_val')), **args)


def read_image(path: Path, mode: str | None = None) -> np.ndarray:
    """An image as an array (H, W) or (H, W, channels), in a mode of Pillow's or in its own.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        image = Image.open(path)
        return np.array(image if mode is None else image.convert(mode))
    except OSError as error:
        raise OSError(f'{path} is no image that can be read: {error}') from error


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Writes a PNG file of uint8 (H, W) or (H, W, 3); its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def check_empty(folder: Path) -> None:
    """Checks that a folder for a data set is new or empty.

    Raises:
        FileExistsError: If it is neither.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f'{folder} has files: choose another folder, or remove it')
