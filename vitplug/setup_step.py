"""One step of `make setup`: runs a command, shows how far it is, and how long it took. Standard library only.

    python -m vitplug.setup_step TITLE LOG COMMAND...

The command's output goes to the file LOG; its end is shown if the command fails.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vitplug.progress import StatusLine, spoken

SHOWN_LINES = 30
# What pip and, if pip runs with -v, ninja tell of their progress. Later lines replace earlier ones.
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
    """What a line of output tells of the progress, None if nothing."""
    for pattern, words in STATES:
        found = pattern.match(line)
        if found:
            return words.format(*found.groups())
    return None


def run_step(
    title: str, log: Path, command: Sequence[str], line: StatusLine, clock: Callable[[], float] = time.monotonic
) -> int:
    """Runs a command and returns its exit status.

    Args:
        title: The name of the step.
        log: File for the command's output; the output of an earlier try is replaced.
        command: The command and its arguments.
        line: Where the progress is shown.
        clock: Gives the time in seconds.
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
                state = next((found for text in reversed(read.readlines()) if (found := state_of(text))), state)
                line.show(f'      {state}, {spoken(clock() - start)} so far')
    took = spoken(clock() - start)
    if status:
        line.say(f'      failed with exit status {status} after {took}; the end of its output:\n')
        line.say('\n'.join(log.read_text(errors='replace').splitlines()[-SHOWN_LINES:]))
        line.say(f'\nerror: {title}: failed; the whole output is in {log}')
    else:
        line.say(f'      done in {took}')
    return status


def _wait(process: subprocess.Popen) -> int | None:
    """The exit status, None if the process still runs after a second."""
    try:
        return process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return None


def main(argv: Sequence[str]) -> int:
    """Runs the step of a command line and returns its exit status; 130 for Ctrl-C, which pip gets as well."""
    if len(argv) < 3:
        print('usage: python -m vitplug.setup_step TITLE LOG COMMAND...', file=sys.stderr)
        return 2
    title, log, *command = argv
    try:
        return run_step(title, Path(log), command, StatusLine())
    except KeyboardInterrupt:
        print(f'\n{title}: stopped; make goes on from this step when it is run again', file=sys.stderr)
        return 130
    except OSError as error:
        print(f'error: {title}: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
