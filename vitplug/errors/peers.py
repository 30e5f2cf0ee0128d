"""Several processes that end together: one that fails tells the others why, and they end with its reason.

Without that the others wait in the next collective call, until the connection breaks or the time-out of the process
group is over, and then show a traceback of that.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch import distributed

from .stops import PeerLost

INTERVAL = 0.5
"""Seconds between two looks for messages of other processes."""
BEAT = 5.0
"""Seconds between two signs of life."""
MISSED = 8
"""After how many looks without a sign of life, :data:`BEAT` seconds apart, a process counts as lost."""
GRACE = 10.0
"""Seconds for this process to end by itself after the store is gone."""

# Number of this start of the processes, for torchrun keeps its store when it starts processes again.
ATTEMPT = 'VITPLUG_ATTEMPT'
KEY = 'vitplug/failed/{}'
SIGNS = 'vitplug/alive/{}/{}'
# Errors of the backends when a process is gone.
LOST = re.compile(r'gloo|NCCL|Connection (closed|reset)|Broken pipe|Socket Timeout', re.IGNORECASE)


class Watch:
    """A thread that ends this process soon after another one has told that it failed, or gives no sign of life.

    Each process watches the next one, and tells the others if it is lost.

    Args:
        store: The store of the process group.
    """

    def __init__(self, store: distributed.Store):
        self.store = store
        self.over = threading.Event()
        self.world = int(os.environ.get('WORLD_SIZE', '1'))
        self.signs, self.missed = 0, 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        looks = 0
        while not self.over.wait(INTERVAL):
            try:
                announced = _announced(self.store)
                if announced is None and looks % round(BEAT / INTERVAL) == 0:
                    announced = self._lost_neighbour()
            except RuntimeError:
                self._end_without_store()
                return
            if announced is not None and announced['rank'] != _rank():
                # The main thread may be in a collective call that does not return.
                _say(announced)
                os._exit(announced['status'])
            looks += 1

    def _lost_neighbour(self) -> dict | None:
        """Gives a sign of life, and looks for one of the next process. Tells the others if that one is lost.

        Looks are counted, not seconds: a machine may have been suspended, and this process with it.
        """
        self.store.add(SIGNS.format(_attempt(), _rank()), 1)
        neighbour = (_rank() + 1) % self.world
        signs = self.store.add(SIGNS.format(_attempt(), neighbour), 0)
        self.missed = self.missed + 1 if signs == self.signs and signs else 0
        self.signs = signs
        if self.missed < MISSED or neighbour == _rank():
            return None
        lost = dict(
            rank=neighbour,
            reason=f'gives no sign of life for {MISSED * BEAT:.0f} s: its machine, its network or the process itself '
            'hangs or is gone; go on with --resume',
            status=PeerLost.status,
        )
        return json.loads(self.store.compare_set(_key(), '', json.dumps(lost)))

    def _end_without_store(self) -> None:
        """Ends this process, unless it does by itself: at the end of a run, the process with the store may go first."""
        if not self.over.wait(GRACE):
            _say(
                dict(
                    rank=_rank(),
                    reason='lost the connection to the process or launcher with the store, which has given no reason: '
                    'look whether it was killed; go on with --resume',
                )
            )
            os._exit(PeerLost.status)


_watch: Watch | None = None


def watch_peers() -> None:
    """Starts to watch the other processes, if there is a process group; does nothing the second time."""
    global _watch
    if _watch is None and _in_group():
        store = _connect()
        _watch = Watch(store) if store else None


def stop_watching() -> None:
    """Stops to watch, before the processes leave one by one."""
    global _watch
    if _watch is not None:
        _watch.over.set()
        _watch = None


def announce(reason: str, status: int, together: bool = False) -> None:
    """Says on stderr why this process ends, and tells the others.

    Where several end for one reason, such as a wrong setting, the first to tell it says it.

    Args:
        reason: One line.
        status: Exit status of this process, and of the processes that end because of it.
        together: True if all processes end by themselves; then the first one speaks, and none ends another.
    """
    notice = dict(rank=_rank(), reason=reason, status=status)
    if together:
        stop_watching()
        if notice['rank'] == 0:
            _say(notice)
        return
    store = _watch.store if _watch else _connect()
    if store is None:
        _say(notice)
        return
    try:
        first = json.loads(store.compare_set(_key(), '', json.dumps(notice)))
    except RuntimeError:  # the process with the store is gone
        first = notice
    if first['rank'] == notice['rank'] or first['reason'] != reason:
        _say(notice)
    if _in_group():
        time.sleep(3 * INTERVAL)  # this process may be the one with the store


@contextmanager
def lost_peers() -> Iterator[None]:
    """Turns the error of a backend that has lost a process into one line.

    Raises:
        PeerLost: if the other process has not told a reason meanwhile.
    """
    try:
        yield
    except RuntimeError as error:
        if not _in_group() or not LOST.search(str(error)):
            raise
        watch_peers()
        time.sleep(3 * INTERVAL)  # a reason that was told ends this process here
        raise PeerLost(
            f'lost the connection to another process, which has given no reason ({str(error).splitlines()[0]}): look '
            'whether it was killed, say because memory ran out (dmesg); go on with --resume'
        ) from error


def tell_of(error: Exception) -> None:
    """Tells the other processes of an error that ends this one with a traceback."""
    if _in_group():
        announce(f'{type(error).__name__}: {" ".join(str(error).split())}', 1)


def _in_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _connect() -> distributed.Store | None:
    """A connection of its own to the store of the launcher or of process 0; None where there is none yet."""
    by_launcher = os.environ.get('TORCHELASTIC_USE_AGENT_STORE') == 'True'
    if not by_launcher and not _in_group():
        return None
    try:
        address, port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
        return distributed.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=10))
    except (KeyError, ValueError, RuntimeError):
        return None


def _announced(store: distributed.Store) -> dict | None:
    text = read_key(store, _key())
    return json.loads(text) if text else None


def read_key(store: distributed.Store, key: str) -> str:
    """The value of a key, '' if it has none; does not wait for it. torch 2.1's store has no `check`."""
    return store.compare_set(key, '', '').decode()


def _key() -> str:
    return KEY.format(_attempt())


def _attempt() -> str:
    return os.environ.get(ATTEMPT, '0')


def _rank() -> int:
    return int(os.environ.get('RANK', '0'))


def _say(notice: dict) -> None:
    several = int(os.environ.get('WORLD_SIZE', '1')) > 1
    try:
        who = f'process {notice["rank"]}: ' if several else ''
        print('error:', who + notice['reason'], file=sys.stderr, flush=True)
    except OSError:  # The terminal was closed; what still waits to be printed would change the exit status.
        sys.stdout = sys.stderr = open(os.devnull, 'w')  # noqa: SIM115
