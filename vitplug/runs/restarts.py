"""Trainings that torchrun starts again: the processes of a start find each other, and go on where the last one ended.

torchrun keeps its store when it starts processes again. The process group must not read what a dead start left there:
torch 2.12 takes the addresses of dead processes for those of living ones. torchrun's count of restarts does not tell
starts apart either: each node has its own.
"""

import json
import os
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

from mmengine import dist
from torch import distributed

from vitplug.errors.peers import ATTEMPT, KEY, read_key
from vitplug.errors.stops import SETTLED, NotStartedAgain, PeerLost

from .saving.folders import AUTO, announced_checkpoint, run_folders

WAITS = 600.0
"""Seconds until a process that does not come is given up, as torchrun waits for a machine."""
CONNECTS = timedelta(seconds=60)
INTERVAL = 0.1
"""Seconds between two looks at the store."""

COUNT = 'vitplug/attempt'
HERE = 'vitplug/{attempt}/here/{rank}'
BEGIN = 'vitplug/{attempt}/begin'
# Whether the training of this start goes on from the last checkpoint, as process 0 decides.
GOES_ON = 'goes_on'
# What the work dir noted before the first start.
NOTE = 'vitplug/note'


@dataclass(frozen=True)
class Meeting:
    """The processes of one start under torchrun.

    Attributes:
        attempt: Number of the start, from 1.
        store: Store of their process group alone.
        shared: Store of all starts.
    """

    attempt: int
    store: distributed.Store
    shared: distributed.Store

    @property
    def place(self) -> dict:
        """Arguments of ``init_process_group``."""
        return dict(store=self.store, rank=int(os.environ['RANK']), world_size=int(os.environ['WORLD_SIZE']))


@cache
def meet() -> Meeting | None:
    """Waits until all processes of this start are there; None if torchrun has not started this one.

    Raises:
        PeerLost: If one does not come.
        NotStartedAgain: If the start before ended for a reason that comes again.
    """
    if os.environ.get('TORCHELASTIC_USE_AGENT_STORE') is None:
        return None
    shared = _torchrun_store()
    rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    attempt = _call_roll(shared, world) if rank == 0 else _answer(shared, rank)
    os.environ[ATTEMPT] = str(attempt)
    _refuse_repetition(shared, attempt)
    return Meeting(attempt, distributed.PrefixStore(f'vitplug/{attempt}', shared), shared)


def _torchrun_store() -> distributed.Store:
    """The agent's store; where the agent offers none, one of process 0, as torch would make it."""
    address, port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
    serves = os.environ['TORCHELASTIC_USE_AGENT_STORE'] != 'True' and os.environ['RANK'] == '0'
    try:
        return distributed.TCPStore(
            address, port, is_master=serves, timeout=CONNECTS, wait_for_workers=False, multi_tenant=True
        )
    except RuntimeError as error:
        raise PeerLost(
            f'cannot reach the store of the first machine at {address}:{port} ({str(error).splitlines()[0]}): if that '
            'machine is lost, start all machines again with --resume; else python -m vitplug.doctor --nodes checks the '
            'network'
        ) from error


def _call_roll(store: distributed.Store, world: int) -> int:
    """Process 0: opens a new start, and begins it when all are there."""
    attempt = store.add(COUNT, 1)
    present: dict[str, str] = {}
    until = time.monotonic() + WAITS
    while missing := [rank for rank in range(1, world) if str(rank) not in present]:
        for rank in missing:
            word = read_key(store, HERE.format(attempt=attempt, rank=rank))
            present |= {str(rank): word} if word else {}
        _wait(until, f'processes {missing} have')
    store.set(BEGIN.format(attempt=attempt), json.dumps(present))
    return attempt


def _answer(store: distributed.Store, rank: int) -> int:
    """Other processes: answer the newest start until it begins with them; one of dead processes never does."""
    word, answered = uuid.uuid4().hex, 0
    until = time.monotonic() + WAITS
    while True:
        attempt = store.add(COUNT, 0)
        if attempt > answered:
            store.set(HERE.format(attempt=attempt, rank=rank), word)
            answered = attempt
        begun = read_key(store, BEGIN.format(attempt=attempt))
        if begun and json.loads(begun).get(str(rank)) == word:
            return attempt
        _wait(until, 'process 0 has')


def _wait(until: float, who: str) -> None:
    if time.monotonic() > until:
        raise PeerLost(
            f'{who} not come within {WAITS:.0f} s: look at their output, and at the network with '
            'python -m vitplug.doctor --nodes'
        )
    time.sleep(INTERVAL)


def _refuse_repetition(store: distributed.Store, attempt: int) -> None:
    """Refuses a start after one that ended for a reason that comes again, such as a wrong setting."""
    announced = read_key(store, KEY.format(attempt - 1))
    if announced and json.loads(announced)['status'] in SETTLED:
        raise NotStartedAgain(json.loads(announced))


# --- where to go on ---


def go_on(cfg, meeting: Meeting | None) -> None:
    """Lets a training that torchrun has started again go on from its last checkpoint, as with `--resume`.

    Until it has written one, it starts as the user said: anew, or from the checkpoint that `--resume PATH` names.

    Args:
        cfg: The config; `resume` and `load_from` are changed in place.
        meeting: The processes of this start; None if torchrun has not started them.
    """
    if meeting is None:
        return
    if os.environ['RANK'] == '0':
        meeting.store.set(GOES_ON, str(_has_written(cfg, meeting)))
    if meeting.store.get(GOES_ON).decode() == str(True):
        cfg.resume, cfg.load_from = AUTO, None


def _has_written(cfg, meeting: Meeting) -> bool:
    """Whether the last checkpoint of the work dir is another one than before the first start."""
    note = f'note: {_note(cfg)}'
    before = read_key(meeting.shared, NOTE)
    if not before:
        meeting.shared.set(NOTE, note)
    return bool(before) and note != before


def _note(cfg) -> str:
    """Identifies what the work dir notes as its last checkpoint; '' if it notes none."""
    note = Path(cfg.work_dir, 'last_checkpoint')
    if note.is_file():
        return f'{note.stat().st_mtime_ns} {note.read_text(errors="replace")}'
    return announced_checkpoint(cfg.work_dir, run_folders(cfg)) or ''


def start_alike(runner) -> None:
    """Lets all processes go on from the checkpoint that process 0 has found: a shared folder may be seen late."""
    chosen: list[object] = [runner._resume, runner._load_from]
    dist.broadcast_object_list(chosen)
    runner._resume, runner._load_from = chosen
