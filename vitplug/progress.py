"""A progress line that is overwritten on a terminal. Standard library only."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO


def spoken(seconds: float) -> str:
    """A duration as '42 s', '3 min 20 s' or '1 h 5 min'."""
    whole = round(seconds)
    if whole < 60:
        return f'{whole} s'
    if whole < 3600:
        return f'{whole // 60} min {whole % 60} s'
    return f'{whole // 3600} h {whole % 3600 // 60} min'


class StatusLine:
    """A progress line: overwritten on a terminal; on other streams, such as a log file, a new line per interval.

    Args:
        stream: Output stream, stdout by default.
        interval: Seconds between two lines if the stream is not a terminal.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, interval: float = 30.0, clock: Callable[[], float] = time.monotonic
    ):
        self.stream = sys.stdout if stream is None else stream
        self.interval, self.clock = interval, clock
        self.shown, self.last = 0, clock()

    def show(self, text: str) -> None:
        """Shows the progress, cut to the width of the terminal."""
        if self.stream.isatty():
            text = text[: shutil.get_terminal_size().columns - 1]
            self._write('\r' + text.ljust(self.shown))
            self.shown = len(text)
            return
        now = self.clock()
        if now - self.last >= self.interval:
            self.last = now
            self._write(f'{text}\n')

    def say(self, text: str) -> None:
        """Replaces the progress by a permanent line."""
        erased = '\r' + ' ' * self.shown + '\r' if self.shown else ''
        self.shown = 0
        self._write(f'{erased}{text}\n')

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
