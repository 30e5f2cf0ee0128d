"""Sharded training is the training of one process: losses, gradients, steps, and checkpoints of any number of them."""

import pytest
import torch
import torch.multiprocessing as mp
from cases import images
from sharded import BATCH, HOSTS, build, step
from torch import nn
from torch.testing import assert_close

from runs.test_distributed import free_port

EXACT = dict(rtol=1e-10, atol=1e-10)
SETTINGS = {
    'vit': (4, {}),
    'swin': (2, dict(activation_checkpointing=True)),
    'mvit': (4, dict(shard_over=2, reshard_after_forward=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize('host', HOSTS)
def test_shards_have_the_loss_and_gradients_of_one_process(host, tmp_path):
    processes, settings = SETTINGS[host]
    mp.spawn(step, args=(processes, free_port(), host, settings, tmp_path / 'step.pth'), nprocs=processes)
    loss, grads, norm = torch.load(tmp_path / 'step.pth')
    model = build(host).train()
    expected = model(images(32, 40, batch=BATCH))
    expected.backward()
    assert_close(loss, expected.detach(), **EXACT)
    assert_close(grads, {name: p.grad for name, p in model.named_parameters()}, **EXACT)
    assert_close(norm, nn.utils.clip_grad_norm_(model.parameters(), 1.0), **EXACT)
