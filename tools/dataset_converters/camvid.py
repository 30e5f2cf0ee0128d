"""Convert CamVid from SegNet's form to the layout that configs/camvid reads."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.camvid import convert
from vitplug.datasets.converting import convert_folder


def main(argv: Sequence[str] | None = None) -> None:
    convert_folder(convert, __doc__, 'folder with CamVid', 'data/camvid', argv)


if __name__ == '__main__':
    main()
