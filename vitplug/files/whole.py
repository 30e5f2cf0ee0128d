"""Files that are written under another name and renamed, so that a kill leaves the old content or the new one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTIAL = '.{}.partial'


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file so that it is never half there; its folder is made.

    Args:
        path: The file; one of this name is replaced.
        write: Called with the other name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(PARTIAL.format(path.name))
    write(partial)
    os.replace(partial, path)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes bytes through to the disk: a power cut leaves the old file or the new one, too."""

    def write(partial: Path) -> None:
        with open(partial, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    write_whole(path, write)


def write_text(path: Path, content: str) -> None:
    """Writes a text in UTF-8."""
    write_bytes(path, content.encode())
