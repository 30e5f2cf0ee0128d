"""Errors of writing name the place and what to do; others stay as they are."""

import errno
import os

import pytest

from vitplug.errors.full_disks import explained_writes
from vitplug.errors.stops import NotWritten


@pytest.mark.parametrize(
    ('number', 'advice'),
    [(errno.ENOSPC, 'make room'), (errno.EFBIG, 'make room'), (errno.EMFILE, r'ulimit -n 65536.*lower num_workers')],
)
def test_the_remedy_is_that_of_the_error(tmp_path, number, advice):
    said = rf'cannot write a\.pth: {os.strerror(number)}.*{advice}'
    with pytest.raises(NotWritten, match=said), explained_writes(str(tmp_path)):
        raise OSError(number, os.strerror(number), 'a.pth')


def test_other_errors_stay(tmp_path):
    with pytest.raises(PermissionError), explained_writes(str(tmp_path)):
        raise PermissionError(errno.EACCES, 'no')
