"""Converters refuse data that is not as it should be."""

from collections.abc import Callable
from pathlib import Path

import pytest


def check_refused(
    convert: Callable[[Path, Path], object], source: Path, change: Callable, kind: type[Exception], message: str
) -> None:
    """Changed data is refused before anything is written.

    Args:
        convert: Takes the folder of the data and one to make.
        source: The data.
        change: Makes it bad; takes its folder.
        kind: The expected error.
        message: Pattern of its message.
    """
    change(source)
    out = source.with_name('out')
    with pytest.raises(kind, match=message):
        convert(source, out)
    assert not out.exists()
