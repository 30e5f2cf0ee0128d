"""CPU threads on a shared machine: their number, and how they wait for each other. Standard library only.

OpenMP threads spin (wait in a busy loop) at the end of each parallel region. If another program or a container's CPU
quota delays one thread, the spinning threads take the CPU time it needs, and a training step takes several times as
long. OpenMP reads its variables once, when torch is imported: call :func:`configure` before that.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

SPIN_COUNT = 1000
"""Iterations of the busy loop before a thread sleeps.

The default is 300,000, and 0 with `OMP_WAIT_POLICY=PASSIVE`.
"""

WAITING = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')
VALUES = {
    'GOMP_SPINCOUNT': (re.compile(r'\d+\s*[kmgt]?|infinit[ey]', re.I), 'a number of loop iterations such as 1000'),
    'OMP_WAIT_POLICY': (re.compile('active|passive', re.I), 'ACTIVE or PASSIVE'),
    'OMP_NUM_THREADS': (re.compile(r'0*[1-9]\d*(\s*,\s*0*[1-9]\d*)*'), 'a number of threads, at least 1'),
}
"""Values that OpenMP accepts, by variable: pattern, and its description."""


def configure() -> None:
    """Sets OpenMP's variables for this process and its child processes. Variables set by the user are kept.

    The number of threads is set only under a CPU quota, which OpenMP ignores. A value that OpenMP does not accept is
    treated as unset, with a warning on stderr.
    """
    for name in VALUES:
        _drop_bad_value(name)
    if not any(name in os.environ for name in WAITING):
        os.environ['GOMP_SPINCOUNT'] = str(SPIN_COUNT)
    number = cores()
    if number < _cores_by_affinity():
        os.environ.setdefault('OMP_NUM_THREADS', str(number))
    # Data loader workers have one torch thread each. mmengine also gives OpenCV one thread in the main process, which
    # forked workers inherit; spawned workers read this variable.
    os.environ.setdefault('OPENCV_FOR_THREADS_NUM', '1')


def cores() -> int:
    """Number of cores that this process may use, at least 1: the CPU affinity or cgroup quota, rounded up."""
    return math.ceil(min(_cores_by_affinity(), cpu_quota()))


def thread_variables(number: int) -> dict[str, str]:
    """OpenMP's variable for a number of threads; none where the user has set another number than `configure` does."""
    users = os.environ.get('OMP_NUM_THREADS', str(cores()))
    return {'OMP_NUM_THREADS': str(number)} if users == str(cores()) else {}


def cpu_quota(proc: Path = Path('/proc/self')) -> float:
    """CPU quota of a process's cgroups, in cores; infinity without a quota.

    A quota also limits all child cgroups, so the smallest quota of the process's cgroup and its parents counts.

    Args:
        proc: The process's folder in /proc.
    """
    try:
        cgroups, mounts = (proc / 'cgroup').read_text(), (proc / 'mountinfo').read_text()
    except OSError:  # not Linux
        return math.inf
    own_cgroups = {}
    for line in cgroups.splitlines():
        _, controllers, path = line.split(':', 2)
        own_cgroups |= dict.fromkeys(controllers.split(','), path)
    quotas = (read(folder) for read, folder in _cgroup_folders(mounts, own_cgroups))
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
    """The folders of the process's cgroup and its parents, each with the function that reads its quota.

    Args:
        mounts: Text of `mountinfo`.
        own: Path of the process's cgroup by controller; version 2 has one cgroup for all controllers, under ''.
    """
    for line in mounts.splitlines():
        fields, _, kind = line.partition(' - ')
        root, mount = map(_unescaped, fields.split()[3:5])
        system, _, options = kind.split(' ', 2)
        if system == 'cgroup2':
            controller, read = '', _quota_v2
        elif system == 'cgroup' and 'cpu' in options.split(','):
            controller, read = 'cpu', _quota_v1
        else:
            continue
        # In a container, the mount may start at the container's cgroup.
        path = PurePosixPath(own.get(controller, '/'))
        inside = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
        for part in (inside, *inside.parents):
            yield read, Path(mount, part)


def _unescaped(path: str) -> str:
    r"""Decodes a path of `mountinfo`, which escapes characters in octal (a space is \040)."""
    return re.sub(r'\\([0-7]{3})', lambda code: chr(int(code[1], 8)), path)


def _quota_v2(folder: Path) -> float:
    text = _text(folder / 'cpu.max')
    return math.inf if text.startswith('max') else _ratio(text.split(), folder / 'cpu.max')


def _quota_v1(folder: Path) -> float:
    quota, period = _text(folder / 'cpu.cfs_quota_us'), _text(folder / 'cpu.cfs_period_us')
    return math.inf if quota in ('max', '-1') else _ratio([quota, period], folder / 'cpu.cfs_quota_us')


def _text(file: Path) -> str:
    """The text of a file, or 'max' if it is missing, as in the root cgroup or in one without the controller."""
    try:
        return file.read_text().strip()
    except OSError:
        return 'max'


def _ratio(numbers: list[str], file: Path) -> float:
    """Quota divided by period, both in microseconds; infinity with a warning if the text is invalid."""
    try:
        quota, period = map(int, numbers)
        if quota > 0 and period > 0:
            return quota / period
    except ValueError:
        pass
    text = ' '.join(numbers)
    _warn(f'the CPU quota in {file} is ignored: expected two numbers of microseconds above 0, not {text!r}')
    return math.inf
