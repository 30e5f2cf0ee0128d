"""Options that commands of analysis share."""

import argparse
from pathlib import Path

from vitplug.commands import add_device
from vitplug.config.options import add_allow_changes, add_options

from .images import SPLITS


def add_out(parser: argparse.ArgumentParser) -> None:
    """The folder of results."""
    help = 'folder for all results: new, or of the same call'
    parser.add_argument('--out', required=True, type=Path, metavar='DIR', help=help)


def add_images(parser: argparse.ArgumentParser, num: int | None, default: str = '') -> None:
    """The folder of results, and the images.

    Args:
        parser: The command's.
        num: Number of images by default.
        default: What is said of it, where that depends on other options.
    """
    add_out(parser)
    parser.add_argument(
        '--images',
        default=SPLITS[0],
        metavar='PATH',
        help=f'folder of images, image, or {" or ".join(SPLITS)} of the config (default {SPLITS[0]})',
    )
    parser.add_argument(
        '--num', type=int, default=num, metavar='N', help=f'images, evenly spaced (default {default or num})'
    )


def add_baseline(parser: argparse.ArgumentParser) -> None:
    """A second model."""
    parser.add_argument(
        '--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help='another model, measured on the same images'
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The device, and what a model may differ in."""
    add_device(parser)
    add_options(parser)
    add_allow_changes(parser)
