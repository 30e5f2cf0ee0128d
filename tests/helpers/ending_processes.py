"""What each of two processes that end runs in a test: a module with few imports, for each process imports it anew."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch import distributed as dist

from vitplug.errors import peers
from vitplug.errors.peers import announce, lost_peers, watch_peers
from vitplug.errors.stops import BadSample, TrainingStopped


def guarded(rank: int, port: int, folder: str, fail: Callable[[], None]) -> None:
    """Ends as the tools do, with stderr in a file; the second process fails, the first waits for it."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE='2')
    with Path(folder, str(rank)).open('w', buffering=1) as file, contextlib.redirect_stderr(file):
        dist.init_process_group('gloo')
        watch_peers()
        try:
            with lost_peers():
                if rank == 1:
                    fail()
                dist.barrier()
        except TrainingStopped as stop:
            announce(str(stop), stop.status)
            sys.exit(stop.status)


def tell_a_reason(*args) -> None:
    def fail():
        raise BadSample('a.png')

    guarded(*args, fail)


def be_killed(*args) -> None:
    guarded(*args, lambda: os.kill(os.getpid(), signal.SIGKILL))


def hang(*args) -> None:
    """The second stops without an end, as in a machine that hangs; the first waits for it with the usual time-out."""
    peers.BEAT, peers.MISSED = 0.5, 4

    def stop():
        time.sleep(3 * peers.BEAT)  # one sign of life at least
        os.kill(os.getpid(), signal.SIGSTOP)

    guarded(*args, stop)


def lose_store(rank: int, port: int, folder: str) -> None:
    """The first process, with the store, is killed; the second computes for long without asking for it."""
    peers.GRACE = 0.5
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE='2')
    with Path(folder, str(rank)).open('w', buffering=1) as file, contextlib.redirect_stderr(file):
        dist.init_process_group('gloo')
        watch_peers()
        dist.barrier()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(200)
