"""Check Fashion-MNIST's packed files and unpack them into the folder that configs/fashion reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.converting import converter_errors
from vitplug.datasets.fashion_mnist import DEBIAN_FOLDER, unpack


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--source', default=DEBIAN_FOLDER, metavar='FOLDER', help='folder with the four .gz files')
    parser.add_argument('--out', default='data/fashion_mnist', metavar='FOLDER', help='folder to make')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        unpack(args.source, args.out)


if __name__ == '__main__':
    main()
