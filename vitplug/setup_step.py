"""One step of `make setup`: runs a command and shows its progress and time. Standard library only.

    python -m vitplug.setup_step TITLE LOG COMMAND...

The command's output is written to the file LOG. If the command fails, the last lines are shown.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vitplug.progress import StatusLine, spoken

SHOWN_LINES = 30
# Progress lines of pip, and of ninja under `pip -v`. The latest match is shown.
STATES: tuple[tuple[re.Pattern, str], ...] = (
    (re.compile(r'\s*\[(\d+)/(\d+)\] '), 'compiled {} of {} files'),
    (
        re.compile(r'\s*(?:Downloading|Using cached) (?:\S*/)?([^\s/]+\.(?:whl|tar\.gz|zip))(?: \((.+)\))?'),
        'getting {}',
    ),
    (re.compile(r'\s*Building wheels? for collected packages: (.+)'), 'building {}'),
    (re.compile(r'\s*Installing collected packages: '), 'installing'),
)


def state_of(line: str) -> str | None:
    """The progress that a line of output reports, or None."""
    for pattern, words in STATES:
        match = pattern.match(line)
        if match:
            return words.format(*match.groups())
    return None


def run_step(
    title: str, log: Path, command: Sequence[str], line: StatusLine, clock: Callable[[], float] = time.monotonic
) -> int:
    """Runs a command and returns its exit status.

    Args:
        title: The name of the step.
        log: File for the command's output; an existing file is overwritten.
        command: The command and its arguments.
        line: Shows the progress.
        clock: Returns the time in seconds.
    """
    line.say(title)
    start, state = clock(), 'started'
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open('w') as written:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        with log.open(errors='replace') as read:
            status = None
            while status is None:
                status = _wait(process)
                state = next((latest for text in reversed(read.readlines()) if (latest := state_of(text))), state)
                line.show(f'      {state}, {spoken(clock() - start)} so far')
    took = spoken(clock() - start)
    if status:
        line.say(f'      failed with exit status {status} after {took}; the last lines of its output:\n')
        line.say('\n'.join(log.read_text(errors='replace').splitlines()[-SHOWN_LINES:]))
        line.say(f'\nerror: {title}: failed; the full output is in {log}')
    else:
        line.say(f'      done in {took}')
    return status


def _wait(process: subprocess.Popen) -> int | None:
    """The exit status, or None if the process still runs after a second."""
    try:
        return process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return None


def main(argv: Sequence[str]) -> int:
    """Runs the step of a command line and returns its exit status; 130 after Ctrl-C, which also stops the command."""
    if len(argv) < 3:
        print('usage: python -m vitplug.setup_step TITLE LOG COMMAND...', file=sys.stderr)
        return 2
    title, log, *command = argv
    try:
        return run_step(title, Path(log), command, StatusLine())
    except KeyboardInterrupt:
        print(f'\n{title}: stopped; run make again to resume at this step', file=sys.stderr)
        return 130
    except OSError as error:
        print(f'error: {title}: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
