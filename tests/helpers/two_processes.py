"""What each of two processes runs in a test: a module of its own, for processes import it anew."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from cases import images, randomize, swin, vit
from torch.nn.parallel import DistributedDataParallel

from vitplug.runs.hooks import NonFiniteLossHook

TOGETHER = [
    dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3),
    dict(type='RelPosMlp', hidden_dims=8, drop_rate=0.0),
    dict(type='GaussianAttentionBias'),
    dict(type='ResidualAttention'),
    dict(type='BroadAttention'),
    dict(type='Refiner'),
]
HOSTS = {'vit': vit, 'swin': swin}


def loss_of(model, x):
    return sum(out.square().mean() for out in model(x))


def build(host):
    return randomize(HOSTS[host](plugs=[dict(plug) for plug in TOGETHER])).double()


def half_step(rank, port, host, path):
    """One of two processes; the first writes the mean loss and the gradients."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=2)
    # Every parameter must take part: unused ones would make this fail.
    model = DistributedDataParallel(build(host), find_unused_parameters=False)
    loss = loss_of(model, images(32, 40, batch=4)[2 * rank : 2 * rank + 2])
    loss.backward()
    dist.all_reduce(loss.data)
    if rank == 0:
        grads = {name: p.grad for name, p in model.module.named_parameters()}
        torch.save((loss.data / 2, grads), path)
    dist.destroy_process_group()
    # Torch can wait for ever where a wrapper in use until now is freed: its destructor holds the lock of Python
    # and joins a thread of gloo that asks for it.
    os._exit(0)


def steps_on_shards(rank, port, folder):
    """Each process has gradients of its own, as of a shard; at the third step those of the second are not finite.

    It writes its weight after each step, and how many steps in a row were skipped.
    """
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=2)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    runner = SimpleNamespace(
        model=model,
        optim_wrapper=SimpleNamespace(optimizer=optimizer),
        logger=SimpleNamespace(warning=print),
        iter=0,
    )
    hook, told = NonFiniteLossHook(), []
    hook.before_train(runner)
    for step in range(4):
        model.weight.grad = torch.full((1, 1), float('nan') if (step, rank) == (2, 1) else -1.0)
        optimizer.step()
        hook.after_train_iter(runner, step, outputs=dict(loss=torch.tensor(0.5)))
        told.append((model.weight.item(), hook.in_a_row))
    Path(folder, f'told{rank}.json').write_text(json.dumps(told))
    os._exit(0)
