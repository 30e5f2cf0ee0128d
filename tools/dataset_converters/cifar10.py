"""Unpack the binary version of CIFAR-10 into the class folders that configs/cifar10 reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.cifar10 import convert
from vitplug.datasets.converting import converter_errors


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('source', metavar='FOLDER', help='folder with data_batch_1.bin ...')
    parser.add_argument('--out', default='data/cifar10_folders', metavar='FOLDER', help='folder to make')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        convert(args.source, args.out)


if __name__ == '__main__':
    main()
