"""What happens around a training while it runs: signals, other trainings, full disks, folders that go."""

import ctypes
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import bad_inputs
import pytest
import torch
from bad_inputs import Outcome, run, snapshot

from vitplug.files.atomic import AtomicBackend
from vitplug.runs.hooks.interruption import SIGNALS

ENDLESS = 'train.py tiny.py --cfg-options train_cfg.max_epochs=100000'
WORKERS = 'train_dataloader.num_workers=1 train_dataloader.persistent_workers=True'
WAIT = 60


class Training:
    """A command in a forked process of its own.

    Args:
        command: The command of a row.
        folder: Where it runs.
        first: What is done in the process before.
    """

    def __init__(self, command: str, folder: Path, first=lambda: None):
        self.outcome_file = folder.parent / f'outcome_{time.monotonic_ns()}'
        self.process = multiprocessing.get_context('fork').Process(target=self._run, args=(command, folder, first))
        self.process.start()

    def _run(self, command, folder, first):
        bad_inputs.running.SIGNALS = ()  # what a command leaves of them is to last until the process ends
        # A shell starts what runs in its background with SIGINT ignored, nohup with SIGHUP; a training respects that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        first()
        outcome = run(command, folder)
        self.outcome_file.write_text(json.dumps([outcome.status, outcome.out, outcome.err]))
        os._exit(0)

    def send(self, name: str) -> None:
        os.kill(self.process.pid, signal.Signals[name])

    def wait(self) -> int:
        """Waits for the end of the process; join() would wait for the workers of its loaders too."""
        wait_for(lambda: self.process.exitcode is not None)
        return self.process.exitcode

    def outcome(self) -> Outcome:
        assert self.wait() == 0
        return Outcome(*json.loads(self.outcome_file.read_text()))


def wait_for(condition) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, 'the training hangs'
        time.sleep(0.005)


@pytest.fixture
def training(folder):
    """Starts trainings, and ends what is left of them."""
    started = []

    def start(command=ENDLESS, first=lambda: None):
        started.append(Training(command, folder, first))
        return started[-1]

    yield start
    for one in started:
        if one.process.exitcode is None:
            one.process.kill()


def begun(folder: Path, work_dir: str = 'work') -> None:
    """Waits for the first checkpoint."""
    wait_for((folder / work_dir / 'last_checkpoint').exists)


# --- signals ---


@pytest.mark.parametrize('name', SIGNALS)
def test_signal_saves(name, folder, training):
    endless = training(f'{ENDLESS} {WORKERS}' if name == 'SIGINT' else ENDLESS)
    begun(folder)
    endless.send(name)
    outcome = endless.outcome()
    assert outcome.status == 75, outcome.text[-2000:]
    assert f'error: stopped by {name} after iteration' in outcome.err and 'Traceback' not in outcome.err
    saved = (folder / 'work/last_checkpoint').read_text()
    state = torch.load(saved, weights_only=False)
    assert f'after iteration {state["meta"]["iter"]} ' in outcome.err and saved in outcome.err and state['optimizer']


def test_signals_without_end_change_nothing(folder, training):
    endless = training()
    begun(folder)
    number = 0
    while endless.process.exitcode is None and number < 10_000:
        endless.send(SIGNALS[number % len(SIGNALS)])
        number += 1
        time.sleep(0.001)
    assert number > 10 and endless.outcome().status == 75


def test_ignored_signal_stays_ignored(folder, training):
    """As nohup has it for SIGHUP."""
    endless = training(first=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    begun(folder)
    endless.send('SIGHUP')
    before = (folder / 'work/last_checkpoint').read_text()
    wait_for(lambda: (folder / 'work/last_checkpoint').read_text() != before)
    endless.send('SIGTERM')
    assert 'stopped by SIGTERM' in endless.outcome().err


# --- two trainings ---


def test_second_training_says_who_is_first(folder, training):
    endless = training(f'{ENDLESS} {WORKERS}')
    begun(folder)
    for command in ('train.py tiny.py', 'train.py tiny.py --resume', 'train.py tiny.py --resume good.pth'):
        second = training(command).outcome()
        assert second.status == 2, second.text[-2000:]
        assert f'process {endless.process.pid})' in second.err and os.uname().nodename in second.err
    endless.send('SIGKILL')
    assert endless.wait() == -signal.SIGKILL
    again = training('train.py tiny.py --resume').outcome()  # though the workers of the first may still be there
    assert again.status == 0, again.text[-2000:]


def test_shared_folder_of_checkpoints_is_locked_too(folder, training):
    options = '--cfg-options default_hooks.checkpoint.out_dir=shared'
    endless = training(f'train.py tiny.py --work-dir one/run {options} train_cfg.max_epochs=100000')
    begun(folder, 'one/run')
    second = training(f'train.py tiny.py --work-dir two/run {options}').outcome()
    assert second.status == 2 and f'shared/run (host {os.uname().nodename}, process' in second.err
    endless.send('SIGTERM')
    assert endless.outcome().status == 75


def no_locks() -> None:
    def refuse(*_):
        raise OSError(95, 'Operation not supported')

    import vitplug.runs.saving.lock

    vitplug.runs.saving.lock.fcntl.lockf = refuse


def test_file_system_without_locks(folder, training):
    outcome = training('train.py tiny.py', no_locks).outcome()
    assert outcome.status == 0, outcome.text[-2000:]
    assert 'work/.training.lock cannot be locked (Operation not supported)' in outcome.err


def test_test_may_share_a_work_dir(folder, training):
    endless = training()
    begun(folder)
    assert training('test.py tiny.py good.pth').outcome().status == 0
    endless.send('SIGTERM')
    assert endless.outcome().status == 75


# --- kills ---


def killed_before(place: str):
    """Kills the process before it writes a file of this name."""

    def patch():
        put = AtomicBackend.put

        def kill_or_put(self, content, path):
            if Path(path).name == place:
                os.kill(os.getpid(), signal.SIGKILL)
            put(self, content, path)

        AtomicBackend.put = kill_or_put

    return patch


@pytest.mark.parametrize('place', ['.first_checkpoint', 'epoch_1.pth', 'last_checkpoint'])
def test_training_killed_around_its_first_checkpoint_resumes(place, folder, training):
    """Without a note of it: it is not taken for one whose note is lost."""
    assert training('train.py tiny.py', killed_before(place)).wait() == -signal.SIGKILL
    assert not (folder / 'work/last_checkpoint').exists()
    options = '--cfg-options train_cfg.max_epochs=2 log_level=INFO'
    again = training(f'train.py tiny.py --resume {options}').outcome()
    assert again.status == 0, again.text[-2000:]
    assert ('resumed epoch: 1' in again.text) == (place == 'last_checkpoint')
    assert not (folder / 'work/.first_checkpoint').exists()
    (folder / 'work/last_checkpoint').unlink()
    assert training('train.py tiny.py --resume').outcome().status == 2


# --- folders that go ---


@pytest.mark.parametrize('replaced', [False, True])
def test_work_dir_that_goes(folder, training, replaced):
    endless = training()
    begun(folder)
    (folder / 'work').rename(folder / 'elsewhere')
    if replaced:
        (folder / 'work').mkdir()
        (folder / 'work/epoch_3.pth').write_text('precious')
    outcome = endless.outcome()
    assert outcome.status == 74, outcome.text[-2000:]
    assert 'work' in outcome.err and 'was removed or replaced' in outcome.err and 'Traceback' not in outcome.err
    assert not replaced or (folder / 'work/epoch_3.pth').read_text() == 'precious'


# --- disks that are full ---

NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS


def full_disk(place: Path, size: str):
    """Puts a small disk there, in this process's view of the files only."""

    def mount():
        place.mkdir(exist_ok=True, parents=True)
        assert ctypes.CDLL(None).unshare(NEW_NAMESPACE) == 0
        subprocess.run(['mount', '--make-rprivate', '/'], check=True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', str(place)], check=True)

    return mount


def filled(place: Path, free: int, size: str = '1m'):
    """Puts a disk there with so many bytes left."""
    mount = full_disk(place, size)

    def fill():
        mount()
        (place / 'filler').write_bytes(bytes(2**20 - free))

    return fill


needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason='only root may mount disks')


@needs_mounts
@pytest.mark.parametrize('free', [0, 4096, 16384])
def test_full_disk_at_the_start(folder, training, free):
    outcome = training('train.py tiny.py --work-dir disk/work', filled(folder / 'disk', free)).outcome()
    assert outcome.status == 74, outcome.text[-3000:]
    assert 'disk/work' in outcome.err.splitlines()[-1] and 'No space left on device' in outcome.err
    assert 'MiB are free there' in outcome.err and 'Traceback' not in outcome.err


@needs_mounts
def test_full_temporary_folder(folder, training):
    def no_room():
        filled(folder / 'tmp', 0)()
        tempfile._candidate_tempdir_list = lambda: [str(folder / 'tmp'), '/proc']
        tempfile.tempdir = None

    outcome = training('train.py tiny.py', no_room).outcome()
    assert outcome.status == 2, outcome.text[-2000:]
    assert str(folder / 'tmp') in outcome.err and 'TMPDIR' in outcome.err


@needs_mounts
@pytest.mark.parametrize('size', ['4k', '20k'])
def test_full_shared_memory(folder, training, size):
    """Too small for the locks of a loader, and too small for its batches."""
    command = f'train.py tiny.py --cfg-options {WORKERS}'
    outcome = training(command, full_disk(Path('/dev/shm'), size)).outcome()
    assert outcome.status == 74, outcome.text[-3000:]
    assert '/dev/shm' in outcome.err.splitlines()[-1] and 'num_workers' in outcome.err


# --- files that are not the training's ---


def test_config_in_the_work_dir_stays(folder):
    (folder / 'mine').mkdir()
    shutil.copy(folder / 'tiny.py', folder / 'mine/my.py')
    before = snapshot(folder)
    assert run('train.py mine/my.py --work-dir mine', folder).status == 0
    assert {path: (folder / path).read_bytes() for path in before} == before
    assert "type='ImageClassifier'" in (folder / 'mine/my_2.py').read_text()


@pytest.mark.parametrize('name', ['.last_checkpoint.partial', '.epoch_1.pth.partial', 'tiny.py'])
def test_links_in_the_work_dir_lead_nowhere(folder, name):
    (folder / 'work').mkdir()
    (folder / 'precious').write_text('precious')
    (folder / 'work' / name).symlink_to(folder / 'precious')
    assert run('train.py tiny.py', folder).status == 0
    assert (folder / 'precious').read_text() == 'precious'
