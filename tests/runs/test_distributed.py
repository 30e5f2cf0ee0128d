"""Two processes: the step of one process with twice the batch, one count of bad samples, and an end together."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys

import pytest
import torch
import torch.multiprocessing as mp
from bad_inputs import TOOLS, child, cut, prepare, remove
from cases import images
from ending_processes import be_killed, hang, lose_store, tell_a_reason
from torch.testing import assert_close
from two_processes import HOSTS, build, half_step, loss_of, steps_on_shards

from vitplug.errors.stops import BadSample, PeerLost


def free_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize('host', HOSTS)
def test_two_processes_are_one_with_twice_the_batch(host, tmp_path):
    mp.spawn(half_step, args=(free_port(), host, tmp_path / 'step.pth'), nprocs=2)
    loss, grads = torch.load(tmp_path / 'step.pth')
    model = build(host)
    expected = loss_of(model, images(32, 40, batch=4))
    expected.backward()
    assert_close(loss, expected.detach())
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()})


@pytest.mark.slow
def test_all_skip_a_step_whose_gradients_one_has_not_finite(tmp_path):
    """A shard of the gradients may be finite where another is not: the weights of one model would part silently."""
    mp.spawn(steps_on_shards, args=(free_port(), tmp_path), nprocs=2)
    first, second = (json.loads((tmp_path / f'told{rank}.json').read_text()) for rank in (0, 1))
    assert first == second == [[1.0, True, False], [2.0, True, False], [2.0, False, False], [3.0, True, False]]


# --- the real tool ---


def started(folder, rank, port, config):
    """`tools/train.py` as one of two processes."""
    command = [sys.executable, TOOLS['train.py'], config, '--launcher', 'pytorch']
    world = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2', LOCAL_WORLD_SIZE='2')
    place = dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **world, **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(processes):
    """Statuses and stderr of processes, all of which end by themselves."""
    try:
        said = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], [out + err for out, err in said], [err for _, err in said]


@pytest.mark.integration
@pytest.mark.slow
def test_bad_images_are_counted_over_all_processes_and_none_counts_twice(tmp_path):
    """Three images on two processes: the second gets a broken one, and the first image once more to fill up."""
    folder = prepare(tmp_path)
    remove('data/val/dog/1.png')(folder)
    cut('data/val/cat/1.png', 0)(folder)
    cut('data/train/cat/1.png', 0)(folder)
    child(
        "val_evaluator = [dict(type='Accuracy'), dict(type='DumpResults', out_file_path='val.pkl')]\n"
        'default_hooks = dict(bad_samples=dict(interval=1))'
    )(folder)
    port = free_port()
    statuses, said, _ = ended([started(folder, rank, port, 'child.py') for rank in (0, 1)])
    assert statuses == [0, 0], said
    assert '1 of 3 validation images cannot be read' in said[0]
    assert '1 samples replaced so far' in said[0]
    results = pickle.loads((folder / 'val.pkl').read_bytes())
    assert sorted(str(result['img_path']) for result in results) == ['data/val/cat/0.png', 'data/val/dog/0.png']


@pytest.mark.integration
@pytest.mark.slow
def test_all_end_with_the_reason_of_the_one_that_fails(tmp_path):
    """With the default time-out of 30 minutes; the first process waits for the second in a collective call."""
    folder = prepare(tmp_path)
    for kind in ('cat', 'dog'):
        cut(f'data/train/{kind}/1.png', 0)(folder)
    child('default_hooks = dict(bad_samples=dict(strict=True))')(folder)
    port = free_port()
    statuses, said, err = ended([started(folder, rank, port, 'child.py') for rank in (0, 1)])
    assert statuses == [65, 65], said
    for text in err:
        assert 'error: process 1: cannot use data/train/' in text and 'Traceback' not in text


# --- without the tool ---


def statuses_of(function, tmp_path, ending=(0, 1)):
    """Exit statuses of two processes that run a function of their rank, a port and a folder; some end by themselves."""
    port = free_port()
    processes = [mp.get_context('spawn').Process(target=function, args=(rank, port, str(tmp_path))) for rank in (0, 1)]
    for process in processes:
        process.start()
    for rank in ending:
        processes[rank].join(timeout=240)
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


@pytest.mark.slow
def test_a_process_that_waits_ends_with_the_reason(tmp_path):
    assert statuses_of(tell_a_reason, tmp_path) == [BadSample.status, BadSample.status]
    assert (tmp_path / '0').read_text() == (tmp_path / '1').read_text() == 'error: process 1: a.png\n'


@pytest.mark.slow
def test_a_process_that_is_killed_gives_no_reason(tmp_path):
    assert statuses_of(be_killed, tmp_path) == [PeerLost.status, -signal.SIGKILL]
    assert 'lost the connection to another process, which has given no reason' in (tmp_path / '0').read_text()


@pytest.mark.slow
def test_a_process_that_hangs_is_noticed_before_the_time_out(tmp_path):
    assert statuses_of(hang, tmp_path, ending=[0]) == [PeerLost.status, -signal.SIGKILL]
    assert 'error: process 1: gives no sign of life for 2 s' in (tmp_path / '0').read_text()


@pytest.mark.slow
def test_a_process_that_computes_notices_that_the_store_is_gone(tmp_path):
    assert statuses_of(lose_store, tmp_path, ending=[1]) == [-signal.SIGKILL, PeerLost.status]
    assert 'lost the connection to the process or launcher with the store' in (tmp_path / '1').read_text()
