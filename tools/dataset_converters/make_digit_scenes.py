"""Make a data set of handwritten digits in the layouts of ImageNet, ADE20K and COCO; needs no download."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vitplug.datasets.converting import add_scene_options, converter_errors
from vitplug.datasets.digit_scenes import make_digit_scenes


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        '--num-cls-train', type=int, default=4000, metavar='N', help='training images in ImageNet layout, at least 10'
    )
    parser.add_argument(
        '--num-cls-val', type=int, default=500, metavar='N', help='validation images in ImageNet layout, at least 10'
    )
    add_scene_options(parser, 'data/digits', num_train=1600, num_val=100)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    args = parser.parse_args(argv)
    with converter_errors(parser):
        make_digit_scenes(
            args.out,
            seed=args.seed,
            num_classification=(args.num_cls_train, args.num_cls_val),
            num_scenes=(args.num_train, args.num_val),
            overwrite=args.overwrite,
        )


if __name__ == '__main__':
    main()
