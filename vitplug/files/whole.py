"""Files that are written under another name and renamed, without OpenMMLab."""

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
