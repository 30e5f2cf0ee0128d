"""Make scenes of Fashion-MNIST's garments in the layouts of ADE20K and COCO."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.converting import converter_errors
from vitplug.datasets.fashion_mnist import DEBIAN_FOLDER
from vitplug.datasets.garment_scenes import make_garment_scenes


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        '--fashion-mnist', default=DEBIAN_FOLDER, metavar='FOLDER', help="folder with Fashion-MNIST's files"
    )
    parser.add_argument('--out', default='data/garments', metavar='FOLDER', help='folder to make')
    parser.add_argument('--seed', type=int, default=0, help='seed of all images, at least 0')
    parser.add_argument('--num-train', type=int, default=4000, metavar='N', help='training scenes for each layout')
    parser.add_argument('--num-val', type=int, default=300, metavar='N', help='validation scenes for each layout')
    parser.add_argument(
        '--overwrite', action='store_true', help='replace a data set that was made with other arguments'
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        make_garment_scenes(
            args.out,
            args.fashion_mnist,
            seed=args.seed,
            num_scenes=(args.num_train, args.num_val),
            overwrite=args.overwrite,
        )


if __name__ == '__main__':
    main()
