"""Write the image lists of the GAB paper's transfer experiments: all images of a data set, split 70 : 15 : 15."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from vitplug.datasets.pooled_splits import POOLS, write_pooled_lists
from vitplug.errors import one_line_errors


def main(argv: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('name', choices=list(POOLS), help='the data set')
    parser.add_argument('root', help='folder with its images, such as data/stanford_dogs')
    args = parser.parse_args(argv)
    with one_line_errors():
        counts = write_pooled_lists(args.name, args.root)
    for name, count in counts.items():
        print(f'{args.root}/meta/{name}.txt: {count} images')


if __name__ == '__main__':
    main()
