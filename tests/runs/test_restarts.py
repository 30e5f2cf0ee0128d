"""Trainings that torchrun starts again: processes of one start find each other, and go on from the right checkpoint."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from mmengine.config import ConfigDict
from soak import kill_under_torchrun
from soak.kill_and_resume import CONFIGS, SHARED, TASKS
from torch.distributed import HashStore, PrefixStore

from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.errors.peers import KEY
from vitplug.errors.stops import BadSample, NotStartedAgain, PeerLost
from vitplug.runs import restarts
from vitplug.runs.restarts import Meeting, go_on
from vitplug.runs.saving.folders import AUTO

ROOT = Path(__file__).resolve().parents[2]


# --- the roll call ---


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(restarts, 'INTERVAL', 0.01)
    return HashStore()


def call_roll(store, world):
    """The number of the start that each of some processes, in threads, finds; process 0 is the last to come."""
    with ThreadPoolExecutor(world) as pool:
        others = [pool.submit(restarts._answer, store, rank) for rank in range(1, world)]
        first = pool.submit(restarts._call_roll, store, world)
        return [one.result(timeout=60) for one in (first, *others)]


def test_processes_of_each_start_find_each_other(store):
    """The store has all that earlier starts have left there."""
    for attempt in (1, 2, 3):
        assert call_roll(store, 3) == [attempt] * 3


def test_start_in_which_process_0_died_is_left(store, monkeypatch):
    """It had opened a start and had not seen all; the others answer it, and then the next one."""
    store.add(restarts.COUNT, 1)
    assert call_roll(store, 2) == [2, 2]


@pytest.mark.parametrize(('rank', 'missing'), [(0, r'processes \[1, 2\] have not come'), (2, 'process 0 has not come')])
def test_process_that_does_not_come_is_named(store, monkeypatch, rank, missing):
    monkeypatch.setattr(restarts, 'WAITS', 0.1)
    with pytest.raises(PeerLost, match=missing):
        restarts._answer(store, rank) if rank else restarts._call_roll(store, 3)


@pytest.mark.parametrize(('status', 'again'), [(2, False), (BadSample.status, False), (69, True), (1, True)])
def test_reason_that_comes_again_ends_the_next_start(store, status, again):
    told = dict(rank=1, reason='lr = -1: must be positive', status=status)
    store.set(KEY.format(1), json.dumps(told))
    if again:
        return restarts._refuse_repetition(store, 2)
    with pytest.raises(NotStartedAgain, match=r'^not started again: lr = -1: must be positive$') as end:
        restarts._refuse_repetition(store, 2)
    assert end.value.status == status
    # The reason is that of the first start, however many follow.
    store.set(KEY.format(2), json.dumps(told | dict(reason=str(end.value))))
    with pytest.raises(NotStartedAgain, match=r'^not started again: lr'):
        restarts._refuse_repetition(store, 3)


# --- where to go on ---


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a training for the n-th time; gives its `resume` and `load_from`."""
    shared = HashStore()
    monkeypatch.setenv('RANK', '0')

    def run(attempt, **settings):
        cfg = ConfigDict(work_dir=str(tmp_path), **settings)
        go_on(cfg, Meeting(attempt, PrefixStore(str(attempt), shared), shared))
        return cfg.get('resume'), cfg.get('load_from')

    return run


def write_checkpoint(folder, name):
    (folder / name).write_text('weights')
    (folder / 'last_checkpoint').write_text(str(folder / name))


@pytest.mark.parametrize(
    'settings', [{}, dict(load_from='pretrained.pth'), dict(resume=True, load_from='other/a.pth'), dict(resume=AUTO)]
)
def test_goes_on_once_a_checkpoint_is_written(start, tmp_path, settings):
    asked = settings.get('resume'), settings.get('load_from')
    assert start(1, **settings) == asked
    assert start(2, **settings) == asked
    write_checkpoint(tmp_path, 'epoch_1.pth')
    assert start(3, **settings) == start(4, **settings) == (AUTO, None)


def test_goes_on_from_a_checkpoint_that_is_not_noted_yet(start, tmp_path):
    start(1)
    (tmp_path / 'epoch_1.pth').write_text('weights')
    (tmp_path / '.first_checkpoint').write_text(str(tmp_path / 'epoch_1.pth'))
    assert start(2) == (AUTO, None)


def test_checkpoint_that_the_user_named_counts_until_there_is_a_new_one(start, tmp_path):
    """The work dir has a later one, from which the user does not want to go on."""
    write_checkpoint(tmp_path, 'epoch_9.pth')
    named = dict(resume=True, load_from=str(tmp_path / 'epoch_5.pth'))
    assert start(1, **named) == start(2, **named) == (True, named['load_from'])
    write_checkpoint(tmp_path, 'epoch_6.pth')
    assert start(3, **named) == (AUTO, None)


def test_earlier_training_in_the_folder_is_not_gone_on_with(start, tmp_path):
    """As the first start, the second one is for the check of folders to refuse."""
    write_checkpoint(tmp_path, 'epoch_9.pth')
    assert start(1) == start(2) == (None, None)


# --- real processes ---


@pytest.mark.slow
def test_killed_training_ends_as_if_nobody_had(tmp_path):
    """The short form of tests/soak/kill_under_torchrun.py."""
    done = kill_under_torchrun.run(tmp_path, kills=1, per_training=1, processes=2, seed=0)
    assert [one['equal'] for one in done] == [True] * len(done), done


@pytest.mark.integration
@pytest.mark.slow
def test_machine_that_is_lost(tmp_path, monkeypatch):
    """Two agents of tools/dist_train.sh: the processes of one end within a minute with the reason of the other."""
    data = make_digit_scenes(tmp_path / 'digits', num_classification=(1200, 20), num_scenes=(1, 1))
    monkeypatch.setenv('VITPLUG_DIGITS', str(data))
    config, options = TASKS['classification']
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]

    workers = [f'{split}_dataloader.num_workers=0' for split in ('train', 'val')]

    def agent(number, log):
        command = ['bash', ROOT / 'tools' / 'dist_train.sh', CONFIGS / config, '1', '--work-dir', tmp_path / 'work']
        command += ['--cfg-options', *options, *SHARED, *workers]
        place = dict(NNODES='2', NODE_RANK=str(number), PORT=str(port), MAX_RESTARTS='1')
        path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
        with open(tmp_path / log, 'w') as file:
            return subprocess.Popen(
                command, env={**os.environ, **place, 'PATH': path}, stdout=file, stderr=file, start_new_session=True
            )

    agents = [agent(0, 'first.log'), agent(1, 'second.log')]
    try:
        wait_until((tmp_path / 'work' / 'last_checkpoint').is_file)
        kill_machine(agents[1])
        killed = time.monotonic()
        wait_until(lambda: 'error: process 0: lost the connection' in (tmp_path / 'first.log').read_text())
        assert time.monotonic() - killed < 60
    finally:
        for one in agents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)


def kill_machine(agent):
    """The agent and all processes that it started, whose sessions are their own."""
    first = psutil.Process(agent.pid)
    for process in [first, *first.children(recursive=True)]:
        process.kill()


def wait_until(condition):
    """Waits for minutes: this machine may be a slow one."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError
