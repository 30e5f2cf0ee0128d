"""Write the image lists of Stanford Dogs for mmpretrain; images.tar and lists.tar must be unpacked in its folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.stanford_dogs import list_stanford_dogs


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('root', nargs='?', default='data/stanford_dogs', help='folder with Images and the two lists')
    parser.add_argument('--seed', type=int, default=0, help='seed of the pooled split, at least 0')
    parser.add_argument('--overwrite', action='store_true', help='replace lists of other content')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        counts = list_stanford_dogs(args.root, args.seed, args.overwrite)
    except ValueError as error:
        parser.error(str(error))
    except (ImportError, OSError) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')
    for name, count in counts.items():
        print(f'{args.root}/meta/{name}.txt: {count} images')


if __name__ == '__main__':
    main()
