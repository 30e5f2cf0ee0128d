"""CPU threads on a machine that is shared: how many, and how they wait for each other. Standard library only.

Threads of OpenMP spin at the end of every parallel part until the last one is there. Where another program, or a
container's CPU quota, holds one of them up, the others burn the time that it needs: a training step takes several times
as long. OpenMP reads its variables once, when torch is loaded, so :func:`configure` comes before that.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

SPIN_COUNT = 1000
"""Turns of a thread's waiting loop before it sleeps; 300,000 if nothing is set, 0 with `OMP_WAIT_POLICY=PASSIVE`.

`python tests/soak/contention.py` compares the three on this machine, quiet and beside one busy process.
"""

WAITING = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')
VALUES = {
    'GOMP_SPINCOUNT': (re.compile(r'\d+\s*[kmgt]?|infinit[ey]', re.I), 'a number of turns such as 1000'),
    'OMP_WAIT_POLICY': (re.compile('active|passive', re.I), 'ACTIVE or PASSIVE'),
    'OMP_NUM_THREADS': (re.compile(r'0*[1-9]\d*(\s*,\s*0*[1-9]\d*)*'), 'a number of threads from 1 on'),
}
"""Values that OpenMP takes, by variable."""


def configure() -> None:
    """Sets OpenMP's variables for this process and those it starts; those that the user has set stay as they are.

    The number of threads is set only below a CPU quota, of which OpenMP does not know. A value that OpenMP would not
    take counts as not set, with a warning on stderr.
    """
    for name in VALUES:
        _drop_bad_value(name)
    if not any(name in os.environ for name in WAITING):
        os.environ['GOMP_SPINCOUNT'] = str(SPIN_COUNT)
    number = cores()
    if number < _cores_by_affinity():
        os.environ.setdefault('OMP_NUM_THREADS', str(number))
    # Workers of data loaders have one thread of torch each. A forked one has the single thread of OpenCV that mmengine
    # sets in the main process; a spawned one starts from this.
    os.environ.setdefault('OPENCV_FOR_THREADS_NUM', '1')


def cores() -> int:
    """Cores that this process may use, at least 1: by CPU affinity, and by the quotas of its cgroups, rounded up."""
    return math.ceil(min(_cores_by_affinity(), cpu_quota()))


def cpu_quota(proc: Path = Path('/proc/self')) -> float:
    """CPU time that the cgroups of a process allow, in cores; infinity without a quota.

    The quota of a cgroup holds for everything inside, so the smallest of the own one and those above it counts.

    Args:
        proc: The process's folder in /proc.
    """
    try:
        cgroups, mounts = (proc / 'cgroup').read_text(), (proc / 'mountinfo').read_text()
    except OSError:  # not Linux
        return math.inf
    own = {}
    for line in cgroups.splitlines():
        _, controllers, path = line.split(':', 2)
        own |= dict.fromkeys(controllers.split(','), path)
    quotas = (read(folder) for read, folder in _cgroup_folders(mounts, own))
    return min(quotas, default=math.inf)


def _cores_by_affinity() -> int:
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _drop_bad_value(name: str) -> None:
    allowed, words = VALUES[name]
    value = os.environ.get(name)
    if value is not None and not allowed.fullmatch(value.strip()):
        _warn(f'{name}={value!r} is ignored: expected {words}')
        del os.environ[name]


def _warn(message: str) -> None:
    print(f'warning: {message}', file=sys.stderr, flush=True)


def _cgroup_folders(mounts: str, own: dict[str, str]) -> Iterator[tuple[Callable[[Path], float], Path]]:
    """The folders of the own cgroup and of those above it, each with the function that reads its quota.

    Args:
        mounts: Text of `mountinfo`.
        own: Path of the own cgroup by controller; version 2 has one cgroup for all, under ''.
    """
    for line in mounts.splitlines():
        place, _, kind = line.partition(' - ')
        root, mount = map(_unescaped, place.split()[3:5])
        system, _, options = kind.split(' ', 2)
        if system == 'cgroup2':
            controller, read = '', _quota_v2
        elif system == 'cgroup' and 'cpu' in options.split(','):
            controller, read = 'cpu', _quota_v1
        else:
            continue
        # In a container, the mount may show a part of the tree only, from the container's cgroup on.
        path = PurePosixPath(own.get(controller, '/'))
        inside = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
        for part in (inside, *inside.parents):
            yield read, Path(mount, part)


def _unescaped(path: str) -> str:
    r"""A path of `mountinfo`, which writes spaces and the like as \040."""
    return re.sub(r'\\([0-7]{3})', lambda code: chr(int(code[1], 8)), path)


def _quota_v2(folder: Path) -> float:
    text = _text(folder / 'cpu.max')
    return math.inf if text.startswith('max') else _ratio(text.split(), folder / 'cpu.max')


def _quota_v1(folder: Path) -> float:
    quota, period = _text(folder / 'cpu.cfs_quota_us'), _text(folder / 'cpu.cfs_period_us')
    return math.inf if quota in ('max', '-1') else _ratio([quota, period], folder / 'cpu.cfs_quota_us')


def _text(file: Path) -> str:
    """The text of a file, 'max' where there is none: the root has no quota, nor has a cgroup without the controller."""
    try:
        return file.read_text().strip()
    except OSError:
        return 'max'


def _ratio(numbers: list[str], file: Path) -> float:
    """Quota by period, both in microseconds; infinity, with a warning, for anything else."""
    try:
        quota, period = map(int, numbers)
        if quota > 0 and period > 0:
            return quota / period
    except ValueError:
        pass
    text = ' '.join(numbers)
    _warn(f'the CPU quota in {file} is ignored: expected two numbers of microseconds above 0, not {text!r}')
    return math.inf
