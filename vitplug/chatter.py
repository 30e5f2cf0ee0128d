"""Lines that libraries print in every run and that say nothing to anybody. Standard library only.

Only known lines are left out, each as a whole; warnings and errors stay.
"""

import re
import sys
from typing import TextIO

KNOWN = re.compile(
    # mmpretrain, mmseg and mmdet of the onedl line: a private library that nobody else has.
    r'Could not import OneDL(\. Skipping OneDL datasets\.)?'
    # pycocotools, for each annotation file that it reads.
    r'|loading annotations into memory\.\.\.|Done \(t=\d+\.\d+s\)|creating index\.\.\.|index created!'
)


def filter_lines() -> None:
    """Leaves known lines out of what this process prints from now on."""
    if not isinstance(sys.stdout, Filtered):
        sys.stdout = Filtered(sys.stdout)


class Filtered:
    """A stream without known lines.

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
