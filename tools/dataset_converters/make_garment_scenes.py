"""Make scenes of Fashion-MNIST's garments in the layouts of ADE20K and COCO."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.converting import add_scene_options, converter_errors
from vitplug.datasets.fashion_mnist import DEBIAN_FOLDER
from vitplug.datasets.garment_scenes import make_garment_scenes


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        '--fashion-mnist', default=DEBIAN_FOLDER, metavar='FOLDER', help="folder with Fashion-MNIST's files"
    )
    add_scene_options(parser, 'data/garments', num_train=4000, num_val=300)
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
