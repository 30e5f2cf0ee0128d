"""How a process of vitplug starts: how OpenMP's threads wait, and which lines are left out. Standard library only."""

import os
import re
import sys
from typing import TextIO

# Lines that libraries print in every run and that say nothing to anybody.
KNOWN = re.compile(
    # mmpretrain, mmseg and mmdet of the onedl line: a private library that nobody else has.
    r'Could not import OneDL(\. Skipping OneDL datasets\.)?'
    # pycocotools, for each annotation file that it reads.
    r'|loading annotations into memory\.\.\.|Done \(t=\d+\.\d+s\)|creating index\.\.\.|index created!'
)


def prepare() -> None:
    """Prepares this process and those that it starts; to be called before torch is loaded.

    Waiting OpenMP threads spin, 300,000 rounds by default. On a shared machine they take CPU time from the threads they
    wait for, and a step takes several times as long; after 1,000 rounds they sleep. Variables of the user are kept.
    """
    if 'OMP_WAIT_POLICY' not in os.environ:
        os.environ.setdefault('GOMP_SPINCOUNT', '1000')
    # mmengine gives OpenCV one thread in each data worker that is forked; spawned workers read this.
    os.environ.setdefault('OPENCV_FOR_THREADS_NUM', '1')
    if not isinstance(sys.stdout, Filtered):
        sys.stdout = Filtered(sys.stdout)


class Filtered:
    """A stream without known lines, each as a whole; warnings and errors stay.

    Args:
        stream: The stream behind it, to which all else goes.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._left_out = False

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text; :func:`print` gives a line and its end one after the other."""
        end_of_known, self._left_out = self._left_out and text == '\n', False
        if end_of_known:
            return 1
        if KNOWN.fullmatch(text.removesuffix('\n')):
            self._left_out = not text.endswith('\n')
            return len(text)
        return self._stream.write(text)
