"""Make a data set of handwritten digits in the layouts of ImageNet, ADE20K and COCO; needs no download."""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Sequence

from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.errors import one_line_errors


def main(argv: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument('--out', default='data/digits', metavar='FOLDER', help='folder to make')
    args = parser.parse_args(argv)
    with one_line_errors():
        make_digit_scenes(args.out)


if __name__ == '__main__':
    main()
