"""Convert CamVid, from SegNet's form or with folders images/SPLIT, to the layout that configs/camvid reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.camvid import convert
from vitplug.datasets.converting import converter_errors


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('source', metavar='FOLDER', help='folder with CamVid')
    parser.add_argument('--out', default='data/camvid', metavar='FOLDER', help='folder to make')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        convert(args.source, args.out)


if __name__ == '__main__':
    main()
