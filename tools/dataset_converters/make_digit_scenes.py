"""Make a data set of handwritten digits in the layouts of ImageNet, ADE20K and COCO; needs no download."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.converting import converter_parser, make_scenes_with
from vitplug.datasets.digit_scenes import make_digit_scenes


def main(argv: Sequence[str] | None = None) -> None:
    parser = converter_parser(__doc__)
    for split, number in (('train', 4000), ('val', 500)):
        parser.add_argument(
            f'--num-cls-{split}', type=int, default=number, metavar='N', help=f'{split} images in ImageNet layout'
        )
    make_scenes_with(_make, parser, (1600, 100), 'data/digits', argv)


def _make(root: str, num_cls_train: int, num_cls_val: int, **settings) -> None:
    make_digit_scenes(root, num_classification=(num_cls_train, num_cls_val), **settings)


if __name__ == '__main__':
    main()
