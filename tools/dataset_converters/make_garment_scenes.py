"""Make scenes of Fashion-MNIST's garments in the layouts of ADE20K and COCO."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.converting import converter_parser, make_scenes_with
from vitplug.datasets.garment_scenes import make_garment_scenes


def main(argv: Sequence[str] | None = None) -> None:
    parser = converter_parser(__doc__)
    parser.add_argument(
        '--fashion-mnist', default='data/fashion_mnist', metavar='FOLDER', help="Fashion-MNIST's files, unpacked"
    )
    make_scenes_with(make_garment_scenes, parser, (4000, 300), 'data/garments', argv)


if __name__ == '__main__':
    main()
