"""Convert CamVid, from SegNet's form or with folders images/SPLIT, to the layout that configs/camvid reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.camvid import convert


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('source', metavar='FOLDER', help='folder with CamVid')
    parser.add_argument('--out', default='data/camvid', metavar='FOLDER', help='folder to make')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        convert(args.source, args.out)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')


if __name__ == '__main__':
    main()
