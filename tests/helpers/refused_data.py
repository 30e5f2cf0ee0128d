"""Converters refuse data that is not as it should be."""

from collections.abc import Callable
from pathlib import Path

import pytest


def check_refused(
    convert: Callable[[Path, Path], object], source: Path, change: Callable, kind: type[Exception], message: str
) -> None:
    """``convert(source, out)`` refuses what ``change(source)`` has made bad, before anything is written."""
    change(source)
    out = source.with_name('out')
    with pytest.raises(kind, match=message):
        convert(source, out)
    assert not out.exists()
