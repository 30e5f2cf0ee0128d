"""Runs tools in forked processes, with limits, faults and signals."""

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import os
import resource
import runpy
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from .trials import Command

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, CLONE_NEWNS, MS_PRIVATE_RECURSIVE = 1, 0x00020000, (1 << 18) | (1 << 14)
WEIGHED_EVERY = 0.1  # seconds
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Limits:
    """What a process and its children may take.

    Attributes:
        seconds: Wall clock.
        cpu_seconds: Of one process.
        memory: Bytes that they may hold together beyond what the first one was forked with.
    """

    seconds: float = 60
    cpu_seconds: int = 40
    memory: int = 3 * 2**30


@dataclass(frozen=True)
class Run:
    """How a command ended.

    Attributes:
        line: The command.
        status: Exit status, negative for a signal.
        out, err: What it printed.
        seconds: How long it took.
        over: The limit that it went over, 'time' or 'memory', or ''.
        writes: How often it opened a file for writing, renamed or removed one in its folder, before the fault.
        checkpoints: How many the work dir held when it ended.
    """

    line: str
    status: int
    out: str
    err: str
    seconds: float
    over: str = ''
    writes: int = 0
    checkpoints: int = 0

    @property
    def text(self) -> str:
        return self.out + self.err


# --- inside of the process of a tool ---


class Writes:
    """Counts the moments of writing in a folder, and lets something happen right before one of them.

    Args:
        folder: The folder; what is written elsewhere does not count.
        file: Where the count goes.
        at: The number of the moment, from 1.
        act: What happens then, called with the path; an exception makes the operation fail with it.
        always: Whether it happens at every later moment too.
    """

    CHANGES = ('os.rename', 'os.remove', 'os.mkdir', 'os.rmdir', 'os.symlink', 'os.link', 'os.truncate')

    def __init__(self, folder: Path, file: int, at: int = 0, act: Callable | None = None, always: bool = False):
        self.folder, self.file, self.at, self.act, self.always = str(folder), file, at, act, always
        self.count, self.acting = 0, False

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.acting or (path := self._written(event, arguments)) is None:
            return
        self.count += 1
        os.pwrite(self.file, f'{self.count}'.encode(), 0)
        if self.act is not None and (self.count == self.at or (self.always and self.count > self.at)):
            self.acting = True
            try:
                self.act(path)
            finally:
                self.acting = False

    def _written(self, event: str, arguments: tuple) -> str | None:
        if event == 'open':
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return None
        elif event in self.CHANGES:
            path = arguments[0]
        else:
            return None
        if isinstance(path, int):
            return None
        path = os.fsdecode(path)
        return path if os.path.abspath(path).startswith(self.folder + os.sep) else None


def at_write(number: int, act: Callable[[str], object], always: bool = False) -> Callable[[], None]:
    """A fault right before the n-th moment of writing."""

    def fault() -> None:
        writes = _writes[0]
        writes.at, writes.act, writes.always = number, act, always

    return fault


def fail_with(number: int) -> Callable[[str], None]:
    """Lets an operation on a file fail with an error number."""

    def act(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    return act


def kill_self(number: int, times: int = 1) -> Callable[[str], None]:
    """Sends a signal to this process."""

    def act(path: str) -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)

    return act


def files_up_to(size: int, deadly: bool = False) -> Callable[[], None]:
    """No file may grow beyond so many bytes: what is over fails, or kills in the middle of the write."""

    def fault() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)

    return fault


def without_privileges() -> None:
    """Gives up what lets root read and write everything; does nothing for a user to whom permissions apply."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    LIBC.capset(header, (ctypes.c_uint32 * 6)())


_writes: list[Writes] = []


def _become_tool(
    command: Command, tools: Mapping[str, Path], folder: Path, streams: Sequence[int], writes: Path, limits: Limits
) -> int:
    """Runs a tool as a program of its own would, and returns its status."""
    tool, *arguments = shlex.split(command.line)
    faulthandler.disable()  # of whoever forked it
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(folder)
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, 'w', closefd=False)
    sys.stderr = os.fdopen(2, 'w', buffering=1, closefd=False, errors='backslashreplace')
    temporary = folder.parent / 'temporary'
    os.environ.update(LOCAL_RANK='0', COLUMNS='120', TORCH_HOME=str(temporary), TMPDIR=str(temporary))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 1))
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 8 * limits.memory, used + 8 * limits.memory))
    _writes[:] = [Writes(folder, os.open(writes, os.O_WRONLY | os.O_CREAT))]
    sys.addaudithook(_writes[0])
    if command.fault is not None:
        command.fault()
    sys.argv = [str(tools[tool]), *arguments]
    try:
        runpy.run_path(str(tools[tool]), run_name='__main__')
        return 0
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException:
        traceback.print_exc()
        return 1


def _end_as_program(status: int) -> None:
    """Ends as an interpreter does: it waits for threads, runs what was registered for the end and flushes."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 120
        traceback.print_exc()
    finally:  # also where nothing can be printed any more
        os._exit(status & 0xFF)


# --- outside of it ---


class Child:
    """A tool in a forked process, and all that it starts."""

    def __init__(self, command: Command, tools: Mapping[str, Path], folder: Path, streams: Path, limits: Limits):
        self.command, self.folder, self.streams, self.limits = command, folder, streams, limits
        streams.mkdir(parents=True)
        sys.stdout.flush()
        sys.stderr.flush()
        self.begin, self.weighed, self.over, self.status = time.monotonic(), 0.0, '', None
        self.signals = sorted(command.signals)
        # Pipes: what limits files, or fills a disk, does not keep a tool from speaking.
        pipes = {name: os.pipe() for name in ('out', 'err')}
        self.pid = os.fork()
        if self.pid == 0:
            status = 121
            try:
                ends = [write for _, write in pipes.values()]
                status = _become_tool(command, tools, folder, ends, streams / 'writes', limits)
            finally:
                _end_as_program(status)
        for read, write in pipes.values():
            os.close(write)
            os.set_blocking(read, False)
        self.pipes = {name: read for name, (read, _) in pipes.items()}
        self.said = dict.fromkeys(self.pipes, b'')
        self.process = psutil.Process(self.pid)
        self.first_size = self._size(self.process)

    def poll(self) -> bool:
        """Sends what signals are due, looks after the limits, and says whether the tool has ended."""
        if self.status is not None:
            return True
        pid, raw = os.waitpid(self.pid, os.WNOHANG)
        self._listen()
        if pid:
            self.status = os.waitstatus_to_exitcode(raw)
            self.seconds = time.monotonic() - self.begin
            self.checkpoints = len(list(self.folder.glob('work/*.pth')))
            self._kill_all()
            return True
        age = time.monotonic() - self.begin
        while self.signals and self.signals[0][0] <= age:
            os.kill(self.pid, self.signals.pop(0)[1])
        if age > self.limits.seconds:
            self.over = 'time'
        elif age > self.weighed + WEIGHED_EVERY:
            self.weighed = age
            self.over = 'memory' if self._memory() > self.limits.memory else ''
        if self.over:
            self._kill_all()
        return False

    def _listen(self) -> None:
        for name, pipe in self.pipes.items():
            with contextlib.suppress(BlockingIOError):
                while part := os.read(pipe, 1 << 16):
                    self.said[name] += part

    def _kill_all(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            if self.status is None:
                os.kill(self.pid, signal.SIGKILL)

    def _memory(self) -> int:
        try:
            family = [self.process, *self.process.children(recursive=True)]
        except psutil.Error:
            return 0
        return sum(max(0, self._size(process) - self.first_size) for process in family)

    @staticmethod
    def _size(process: psutil.Process) -> int:
        try:
            return process.memory_info().rss
        except psutil.Error:
            return 0

    def run(self) -> Run:
        """How it ended."""
        for name, pipe in self.pipes.items():
            os.close(pipe)
            (self.streams / name).write_bytes(self.said[name])
        out, err = (self.said[name].decode(errors='replace') for name in ('out', 'err'))
        if self.status == -signal.SIGXCPU:
            self.over = 'time'
        writes = (self.streams / 'writes').read_text() if (self.streams / 'writes').exists() else ''
        return Run(
            self.command.line, self.status, out, err, self.seconds, self.over, int(writes or 0), self.checkpoints
        )


def run_together(
    commands: Sequence[Command], tools: Mapping[str, Path], folder: Path, streams: Path, limits: Limits
) -> list[Run]:
    """Runs commands at the same time until all have ended."""
    children = []
    for number, command in enumerate(commands):
        children.append(Child(command, tools, folder, streams / str(number), limits))
    while not all([child.poll() for child in children]):
        time.sleep(0.02)
    return [child.run() for child in children]


def own_mounts() -> bool:
    """Lets this process mount what no other one sees; False where it may not."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    return LIBC.mount(b'none', b'/', None, MS_PRIVATE_RECURSIVE, None) == 0


def small_disk(folder: Path, size: int) -> bool:
    """Puts a disk of so many bytes at a folder, for this process and its children; False where that is not allowed."""
    folder.mkdir(exist_ok=True)
    return own_mounts() and LIBC.mount(b'tmpfs', str(folder).encode(), b'tmpfs', 0, f'size={size}'.encode()) == 0


ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE)
