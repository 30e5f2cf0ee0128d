"""Unpack the binary version of CIFAR-10 into the class folders that configs/cifar10 reads."""

from __future__ import annotations

from collections.abc import Sequence

from vitplug.datasets.cifar10 import convert
from vitplug.datasets.converting import convert_folder


def main(argv: Sequence[str] | None = None) -> None:
    convert_folder(convert, __doc__, 'folder with data_batch_1.bin ...', 'data/cifar10_folders', argv)


if __name__ == '__main__':
    main()
