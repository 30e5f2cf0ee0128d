"""Two processes: the step of one process with twice the batch, and steps that all skip together."""

import json
import socket

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from torch.testing import assert_close
from two_processes import HOSTS, build, half_step, loss_of, steps_on_shards


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
    assert first == second == [[1.0, 0], [2.0, 0], [2.0, 1], [3.0, 0]]
