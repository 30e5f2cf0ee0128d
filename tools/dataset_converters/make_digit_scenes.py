"""Make a data set of handwritten digits in the layouts of ImageNet, ADE20K and COCO; needs no download."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.converting import converter_parser
from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.errors import one_line_errors


def main(argv: Sequence[str] | None = None) -> None:
    args = converter_parser(__doc__, 'data/digits').parse_args(argv)
    with one_line_errors():
        make_digit_scenes(args.out)


if __name__ == '__main__':
    main()
