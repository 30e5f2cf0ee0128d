"""Full disks, full shared memory and work dirs that are gone: errors of torch and the system, with the path added."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from vitplug.files.atomic import identity
from vitplug.files.limits import RAISE_THE_LIMIT, TOO_MANY_FILES

from .stops import NotWritten, TrainingStopped

# Full, a quota, and a limit of a file's size.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_ROOM = os.strerror(errno.ENOSPC)
SHARED_MEMORY = '/dev/shm'
# torch's messages where a batch, or a page of one, finds no room in it.
OUT_OF_SHARED_MEMORY = re.compile(r'</torch_.*(No space left|Cannot allocate)|killed by signal: Bus error', re.DOTALL)
ALMOST_NONE = 2**20  # bytes


@contextmanager
def explained_writes(work_dir: str | None = None) -> Iterator[None]:
    """Turns errors of a full disk, a full shared memory and a work dir that is gone into `NotWritten`.

    Args:
        work_dir: The work dir, if it is known.

    Raises:
        NotWritten: names the folder and what to do.
    """
    begin = work_dir and identity(work_dir)
    try:
        yield
    except TrainingStopped:
        raise
    except (OSError, RuntimeError) as error:
        if begin and begin != identity(work_dir):
            reason = f'{work_dir} was removed or replaced while it was written into ({error}): start again'
        else:
            reason = _reason(error, work_dir)
        if reason is None:
            raise
        raise NotWritten(reason) from error


def _reason(error: OSError | RuntimeError, work_dir: str | None) -> str | None:
    """The message for a full disk or a full shared memory; None for other errors."""
    # A write into an open file fails without its name; then the disk that is full tells it.
    named = getattr(error, 'filename', None)
    places = [place for place in (work_dir, tempfile.tempdir, SHARED_MEMORY) if place]
    place = named or next(filter(_is_full, places), work_dir or 'a file')
    if OUT_OF_SHARED_MEMORY.search(str(error)) or (place == SHARED_MEMORY and _no_room(error)):
        return (
            f'{SHARED_MEMORY}: no room for the batches of the loaders ({free_space(SHARED_MEMORY)}): enlarge it '
            '(docker run --shm-size), or lower num_workers or batch_size'
        )
    if getattr(error, 'errno', None) in TOO_MANY_FILES:
        return f'cannot write {place}: {error.strerror}: {RAISE_THE_LIMIT}, or lower num_workers'
    if not _no_room(error):
        return None
    reason = getattr(error, 'strerror', None) or NO_ROOM
    return f'cannot write {place}: {reason} ({free_space(place)}): make room, or choose another place'


def _no_room(error: OSError | RuntimeError) -> bool:
    # An error that a loader's worker hands on has no number, but a traceback as its message.
    return getattr(error, 'errno', None) in FULL or NO_ROOM in str(error)


def free_space(path: str) -> str:
    """Free space on the disk of a file or folder, which need not exist, for a message."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path) or '.'
    try:
        return f'{shutil.disk_usage(path).free / 2**20:.0f} MiB are free there'
    except OSError as error:
        return str(error.strerror)


def _is_full(path: str) -> bool:
    return os.path.exists(path) and shutil.disk_usage(path).free < ALMOST_NONE
