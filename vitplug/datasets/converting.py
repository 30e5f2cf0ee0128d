"""What the commands that convert data sets share: their options, reading images and writing PNG files."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitplug.errors import one_line_errors


def convert_folder(
    convert: Callable[[Path, Path], Any], description: str, source: str, out: str, argv: Sequence[str] | None
) -> None:
    """A command that converts one folder, described by ``source``, to another, by default ``out``."""
    parser = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument('--out', default=out, metavar='FOLDER', type=Path, help='folder to make')
    parser.add_argument('source', metavar='FOLDER', type=Path, help=source)
    with one_line_errors():
        convert(**vars(parser.parse_args(argv)))


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
