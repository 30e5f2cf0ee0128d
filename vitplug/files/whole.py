"""Files that are written under another name and renamed, so that a kill leaves the old content or the new one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file so that it is never half there, not even after a power cut; its folder is made.

    Args:
        path: The file; one of this name is replaced.
        write: Called with the other name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'.{path.name}.partial')
    write(partial)
    with open(partial, 'rb+') as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes bytes."""
    write_whole(path, lambda partial: partial.write_bytes(content))


def write_text(path: Path, content: str) -> None:
    """Writes a text in UTF-8."""
    write_bytes(path, content.encode())
