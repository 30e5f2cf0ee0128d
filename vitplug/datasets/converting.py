"""What the commands that make data sets share: their options, reading images and writing PNG files."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitplug.errors import one_line_errors


def converter_parser(description: str) -> ArgumentParser:
    """A parser whose help has the defaults."""
    return ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)


def convert_folder(
    convert: Callable[[Path, Path], Any], description: str, source: str, out: str, argv: Sequence[str] | None
) -> None:
    """A command that converts one folder to another.

    Args:
        convert: Called with both folders.
        description: Of the command, for `--help`.
        source: Description of the first folder.
        out: Default of the second folder.
        argv: The command line; None for the process's own.
    """
    parser = converter_parser(description)
    parser.add_argument('source', metavar='FOLDER', type=Path, help=source)
    parser.add_argument('--out', default=out, metavar='FOLDER', type=Path, help='folder to make')
    with one_line_errors():
        convert(**vars(parser.parse_args(argv)))


def make_scenes_with(
    make: Callable[..., Any], parser: ArgumentParser, scenes: tuple[int, int], out: str, argv: Sequence[str] | None
) -> None:
    """A command that makes scenes.

    Args:
        make: Called with the folder and the options of the parser by name.
        parser: Has the options of this data set.
        scenes: Default numbers of training and validation scenes.
        out: Default folder.
        argv: The command line; None for the process's own.
    """
    parser.add_argument('--out', dest='root', default=out, metavar='FOLDER', help='folder to make')
    parser.add_argument('--seed', type=int, default=0, help='seed of the split, if any, and of all images, at least 0')
    for split, number in zip(('train', 'val'), scenes, strict=True):
        parser.add_argument(
            f'--num-{split}', type=int, default=number, metavar='N', help=f'{split} scenes for each of ADE20K and COCO'
        )
    args = vars(parser.parse_args(argv))
    with one_line_errors():
        make(num_scenes=(args.pop('num_train'), args.pop('num_val')), **args)


def read_image(path: Path, mode: str | None = None) -> np.ndarray:
    """An image as an array (H, W) or (H, W, channels), in a mode of Pillow's or in its own."""
    image = Image.open(path)
    return np.array(image if mode is None else image.convert(mode))


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Writes a PNG file of uint8 (H, W) or (H, W, 3); its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def check_empty(folder: Path) -> None:
    """Raises FileExistsError if a folder for a data set is neither new nor empty."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f'{folder} has files: choose another folder, or remove it')
