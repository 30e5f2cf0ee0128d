"""Files that are there completely or not at all."""

import os
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

PARTIAL = '.{}.partial'


@register_backend('vitplug.atomic')
class AtomicBackend(LocalBackend):
    """mmengine's backend for local files, with writes that a kill or a full disk cannot leave half done.

    A file is written under another name in the same folder, flushed to the disk and renamed; a reader sees the old
    content or the new one.
    """

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes bytes to a file.

        Raises:
            OSError: if they cannot be written; what the file held before is still there.
        """
        path = Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(PARTIAL.format(path.name))
        try:
            self.write(partial, obj)
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)

    def put_text(self, obj: str, filepath: str | Path, encoding: str = 'utf-8') -> None:
        """Writes text to a file.

        Raises:
            OSError: as `put`.
        """
        self.put(obj.encode(encoding), filepath)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a new file through to the disk.

        Raises:
            OSError: if the disk is full or the folder unwritable.
        """
        with open(path, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def remove_partial_files(folder: str | Path) -> list[Path]:
    """Removes what killed writers of checkpoints left behind in a folder, and returns it."""
    partial = sorted(Path(folder).glob(PARTIAL.format('*.pth')))
    for path in partial:
        path.unlink(missing_ok=True)
    return partial


def _flush_folder(folder: Path) -> None:
    """Makes a rename durable: without it a power cut may undo the rename after the old file was removed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
