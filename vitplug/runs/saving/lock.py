"""One training, or one controller of trainings, at a time in a folder."""

import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitplug.files.atomic import check_record_file

LOCK = '.training.lock'
TAKEN = (errno.EACCES, errno.EAGAIN)


@contextmanager
def locked(path: Path, what: str, option: str) -> Iterator[None]:
    """Holds a lock until the end or the death of this process; makes a missing folder.

    Args:
        path: The lock file; names the host and the process of its last holder.
        what: What holds it, for the error.
        option: The option that chooses another folder, for the error.

    Raises:
        BlockingIOError: if another process holds the lock; names the process.
        OSError: if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    check_record_file(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _take(descriptor, path, what, option)
        os.ftruncate(descriptor, 0)
        try:
            os.write(descriptor, f'host {socket.gethostname()}, process {os.getpid()}'.encode())
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from error
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, what: str, option: str) -> None:
    try:
        # Not flock(): a loader's workers would inherit that lock, and hold it for seconds after a kill.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in TAKEN:
            print(f'warning: {path} cannot be locked ({error.strerror}): start no second {what}', file=sys.stderr)
            return
        holder = ''.join(filter(str.isprintable, os.read(descriptor, 200).decode(errors='replace')))
        raise BlockingIOError(
            f'another {what} is running in {path.parent} ({holder or "of an unknown process"}): '
            f'wait for its end, stop it, or choose another {option}'
        ) from error
