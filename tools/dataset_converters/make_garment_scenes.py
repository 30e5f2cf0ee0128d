"""Make scenes of Fashion-MNIST's garments in the layouts of ADE20K and COCO."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.converting import converter_parser
from vitplug.datasets.garment_scenes import garments
from vitplug.datasets.scenes import make_scenes
from vitplug.errors import one_line_errors


def main(argv: Sequence[str] | None = None) -> None:
    parser = converter_parser(__doc__, 'data/garments')
    parser.add_argument(
        '--fashion-mnist', default='data/fashion_mnist', metavar='FOLDER', help="Fashion-MNIST's files, unpacked"
    )
    args = parser.parse_args(argv)
    with one_line_errors():
        make_scenes(args.out, garments(args.fashion_mnist), seed=0, counts=dict(ade=(4000, 300), coco=(4000, 300)))


if __name__ == '__main__':
    main()
