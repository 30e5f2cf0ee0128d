"""Two processes with half a batch each take the step of one process with all of it."""

import socket

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from torch.testing import assert_close
from two_processes import HOSTS, build, half_step, loss_of


@pytest.mark.parametrize('host', HOSTS)
def test_two_processes_are_one_with_twice_the_batch(host, tmp_path):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    mp.spawn(half_step, args=(port, host, tmp_path / 'step.pth'), nprocs=2)
    loss, grads = torch.load(tmp_path / 'step.pth')
    model = build(host)
    expected = loss_of(model, images(32, 40, batch=4))
    expected.backward()
    assert_close(loss, expected.detach())
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()})
