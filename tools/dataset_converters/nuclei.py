"""Convert the nuclei of the Data Science Bowl 2018 (BBBC038, stage 1) to the COCO data that configs/nuclei reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.converting import converter_errors
from vitplug.datasets.nuclei import convert


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('source', metavar='FOLDER', help='folder stage1_train, with one folder for each image')
    parser.add_argument('--out', default='data/nuclei', metavar='FOLDER', help='folder to make')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        convert(args.source, args.out)


if __name__ == '__main__':
    main()
