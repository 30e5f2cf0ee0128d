"""What came of a trial: kinds of outcomes, from what was printed, the files before and after and the clean results."""

import enum
import fnmatch
import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import sandbox
from .processes import Run
from .sandbox import Sound
from .trials import Accept, Command, Trial


class Kind(enum.Enum):
    """Outcomes, the worst first."""

    CODE = 'code run'
    LOSS = 'loss'
    CRASH = 'crash'
    HANG = 'hang'
    SILENT = 'silently wrong'
    POOR = 'poor message'
    REFUSED = 'named refusal'
    HANDLED = 'handled'


FAILURES = (Kind.CODE, Kind.LOSS, Kind.CRASH, Kind.HANG, Kind.SILENT)


@dataclass(frozen=True)
class Verdict:
    """An outcome and its reason."""

    kind: Kind
    why: str


# --- messages ---

# What a status other than 0 may be (README, `vitplug.errors.stops`).
STATUSES = {
    'train.py': {2, 65, 66, 70, 74, 75},
    'test.py': {2, 65, 66, 70, 74, 75},
    'check_dataset.py': {1, 2},
    'predict.py': {2, 65, 66, 74, 75},
    'ablate.py': {1, 2, 74, 75},
}
OTHERS = {2, 74, 75}
MOST_LINES, LONGEST = 12, 2500
ERROR_LINE = re.compile(r'^(\S+: )?error: .+', re.M)
CONTROL = re.compile(r'[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]')


def poor_message(run: Run, names: Sequence[str]) -> str:
    """What is wrong with what a command says, or ''."""
    tool = run.line.split()[0]
    if run.status < 0:
        return f'it died of signal {-run.status} and saved nothing'
    if 'Traceback (most recent call last)' in run.text:
        return f'a traceback: {run.text.strip().splitlines()[-1][:200]}'
    if found := CONTROL.search(run.text):
        return f'a control character, {found.group()!r}'
    if run.status == 0:
        return ''
    if run.status not in STATUSES.get(tool, OTHERS):
        return f'status {run.status} is explained nowhere'
    findings = tool in ('check_dataset.py', 'ablate.py') and run.status == 1
    if not findings and not ERROR_LINE.search(run.err):
        return 'no line that begins with "error:"'
    if len(run.err.splitlines()) > MOST_LINES and not findings:
        return f'{len(run.err.splitlines())} lines'
    if any(len(line) > LONGEST for line in run.text.splitlines()):
        return f'a line of {max(map(len, run.text.splitlines()))} characters'
    if names and not any(name in run.text or repr(name)[1:-1] in run.text for name in names):
        return f'names none of {list(names)[:6]}'
    return ''


def last_line(run: Run) -> str:
    """The line that says most: that of the error, or the last one."""
    lines = [line for line in run.err.splitlines() if ERROR_LINE.match(line)]
    lines = lines or [line for line in run.text.splitlines() if line.strip()] or ['(nothing)']
    return lines[-1]


# --- files ---


# What the campaign itself makes beside a sandbox.
OWN = ('streams', 'temporary')


def snapshot(root: Path) -> dict[str, str]:
    """Every file, link and folder below a folder: its kind and a hash of its content. Links are not followed."""
    found = {}
    for parent, folders, files in os.walk(root):
        for path in (Path(parent, name) for name in [*folders, *files]):
            name = str(path.relative_to(root))
            if not name.startswith(OWN):
                try:
                    found[name] = _content(path)
                except OSError as error:
                    found[name] = f'error {error.errno}'
    return found


def _content(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f'link to {os.readlink(path)}'
    if stat.S_ISREG(mode):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return f'kind {stat.S_IFMT(mode):o}'


# Who holds a folder, which anybody writes anew who holds it.
LOCKS = '*/.*.lock'


def lost(before: Mapping[str, str], after: Mapping[str, str], may_change: Sequence[str]) -> str:
    """The first file that was there before and is not any more what it was, or ''."""
    for name, content in before.items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in (*may_change, LOCKS)):
            continue
        if name not in after:
            return f'{name} was removed'
        if after[name] != content:
            return f'{name} was changed'
    return ''


def broken_checkpoint(root: Path, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The first new checkpoint under its final name that is not complete, or ''."""
    for name, content in after.items():
        path = root / name
        new = before.get(name) != content
        if new and path.suffix == '.pth' and not path.name.startswith('.') and path.is_file():
            try:
                with zipfile.ZipFile(path) as file:
                    bad = file.testzip()
            except (zipfile.BadZipFile, OSError, RuntimeError) as error:
                bad = str(error)
            if bad:
                return f'{name} is incomplete under its final name ({bad})'
    return ''


# --- all of it ---


@dataclass(frozen=True)
class Observation:
    """What was seen of a trial.

    Attributes:
        root: The sandbox's parent.
        runs: The runs of each step.
        before, after: Snapshots of `root`.
    """

    root: Path
    runs: Sequence[Sequence[Run]]
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def all_runs(self) -> list[Run]:
        return [run for step in self.runs for run in step]

    @property
    def folder(self) -> Path:
        return self.root / 'sandbox'


def judge(trial: Trial, seen: Observation, clean: Sequence[Sound]) -> Verdict:
    """Says what came of a trial.

    Args:
        trial: The trial.
        seen: What was seen.
        clean: The runs of sound inputs whose results are legitimate.
    """
    if (seen.root / 'harm').exists() or (seen.folder / 'harm').exists():
        return Verdict(Kind.CODE, 'code of a file was run')
    if change := lost(seen.before, seen.after, trial.may_change):
        return Verdict(Kind.LOSS, change)
    if broken := broken_checkpoint(seen.root, seen.before, seen.after):
        return Verdict(Kind.LOSS, broken)
    for command, run in zip(trial.commands, seen.all_runs, strict=True):
        if run.over == 'memory':
            return Verdict(Kind.CRASH, f'{run.line}: ended for its memory')
        if run.over == 'time':
            return Verdict(Kind.HANG, f'{run.line}: ended after {run.seconds:.0f} s')
        if run.status < 0 and run.status not in command.ends and -run.status != command.asked:
            return Verdict(Kind.CRASH, f'{run.line}: signal {-run.status}')
    if wrong := silently_wrong(trial, seen, clean):
        return Verdict(Kind.SILENT, wrong)
    for command, run in zip(trial.commands, seen.all_runs, strict=True):
        if is_judged(command, run) and (poor := poor_message(run, trial.names)):
            return Verdict(Kind.POOR, f'{run.line[:200]}: {poor}; it says: {last_line(run)}')
    last = seen.runs[-1][-1]
    if any(run.status == 0 for run in seen.runs[-1]):
        return Verdict(Kind.HANDLED, 'ended with status 0')
    if trial.harmless:
        return Verdict(Kind.POOR, f'refused without need: {last_line(last)}')
    return Verdict(Kind.REFUSED, last_line(last))


def is_judged(command: Command, run: Run) -> bool:
    """Whether a command should have ended with a message: one that a fault killed should not, nor one that was
    asked to end before it had anything to save."""
    if command.asked is not None and run.status == -command.asked and not run.checkpoints:
        return False
    return run.status == 0 or run.status not in command.ends


def silently_wrong(trial: Trial, seen: Observation, clean: Sequence[Sound]) -> str:
    """What is wrong with the results of a last step that ended with status 0, or ''."""
    ended_well = [run for run in seen.runs[-1] if run.status == 0]
    if not ended_well:
        return ''
    if trial.alone and len(ended_well) > 1:
        return 'status 0 of two that cannot both have what they wrote'
    if trial.accept is Accept.REFUSED:
        return 'status 0 for what has to be refused'
    try:
        found = sandbox.results(seen.folder, seen.all_runs)
        if skipped := sandbox.skipped_at_the_end(seen.folder):
            return f'status 0, but {skipped}'
    except Exception as error:
        return f'status 0, but what it wrote cannot be read: {type(error).__name__}: {error}'
    if trial.accept is Accept.ANY or not clean:
        return sandbox.not_finite(found)
    differences = [sandbox.difference(found, sound.results) for sound in clean]
    told = trial.accept is Accept.TOLD and _is_told(trial, seen, clean)
    if trial.accept is Accept.TOLD and ended_well[0].line.startswith('check_dataset.py'):
        # Its results are what it tells.
        return '' if told and all(differences) else 'the check of the data set does not tell of it'
    if not all(differences):
        return ''
    if told:
        return sandbox.not_finite(found)
    return f'status 0 and another result than that of the sound input: {differences[0]}'


def _is_told(trial: Trial, seen: Observation, clean: Sequence[Sound]) -> bool:
    """Whether a line names the damage that is not printed for sound inputs too, whatever its numbers."""
    usual = {DIGITS.sub('0', line) for sound in clean for line in sound.run.text.splitlines()}
    lines = [line for run in seen.runs[-1] for line in run.text.splitlines()]
    for path in seen.folder.glob('*/bad_samples.jsonl'):
        lines += path.read_text(errors='replace').splitlines()
    return any(name in line for line in lines if DIGITS.sub('0', line) not in usual for name in trial.names)


DIGITS = re.compile(r'\d+')
