"""Convert the nuclei of the Data Science Bowl 2018 (BBBC038, stage 1) to the COCO data that configs/nuclei reads."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.converting import convert_folder
from vitplug.datasets.nuclei import convert


def main(argv: Sequence[str] | None = None) -> None:
    convert_folder(convert, __doc__, 'folder stage1_train, with one folder for each image', 'data/nuclei', argv)


if __name__ == '__main__':
    main()
