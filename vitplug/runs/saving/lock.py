"""One training at a time in a folder."""

import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vitplug.files.atomic import check_record_file

LOCK = '.training.lock'
TAKEN = (errno.EACCES, errno.EAGAIN)


@contextmanager
def only_training(folders: Iterable[Path]) -> Iterator[None]:
    """Holds a lock on each folder until the end or the death of this process; makes missing folders.

    The file `.training.lock` in a folder names the host and the process of its last holder. Where a file system has
    no locks, a warning says so.

    Raises:
        BlockingIOError: if another process holds one of the locks; names the process.
        OSError: if a lock file cannot be written.
    """
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(_locked(folder))
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    check_record_file(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _take(descriptor, path)
        os.ftruncate(descriptor, 0)
        try:
            os.write(descriptor, f'host {socket.gethostname()}, process {os.getpid()}'.encode())
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from error
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    try:
        # Not flock(): a loader's workers would inherit that lock, and hold it for seconds after a kill.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in TAKEN:
            print(f'warning: {path} cannot be locked ({error.strerror}): start no second training', file=sys.stderr)
            return
        holder = ''.join(filter(str.isprintable, os.read(descriptor, 200).decode(errors='replace')))
        raise BlockingIOError(
            f'another training is running in {path.parent} ({holder or "of an unknown process"}): '
            'wait for its end, stop it, or choose another --work-dir'
        ) from error
