"""What each of some processes runs in a test of sharded training: a module of its own, for processes import it anew."""

import os

import torch
import torch.distributed as dist
from cases import images, mvit, randomize, swin, vit
from torch import nn
from torch.distributed.tensor import DTensor
from two_processes import TOGETHER

from vitplug.runs.sharding import FSDP2Strategy

HOSTS = {'vit': vit, 'swin': swin, 'mvit': mvit}
BATCH = 4


class Classifier(nn.Module):
    """A backbone and a head, whose forward gives the loss."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.LazyLinear(5)

    def forward(self, x):
        outs = self.backbone(x)
        return self.head(outs[-1].flatten(1)).square().mean() + sum(out.square().mean() for out in outs)


def build(host, **settings):
    plugs = [dict(plug) for plug in TOGETHER if plug['type'] != 'BroadAttention' or host != 'mvit']
    torch.manual_seed(0)
    model = Classifier(HOSTS[host](plugs=plugs, **settings)).double()
    model.eval()(images(32, 40, batch=BATCH))
    return randomize(model)


def join(rank, processes, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), LOCAL_WORLD_SIZE=str(processes))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=processes)


def step(rank, processes, port, host, settings, path):
    """One process's part of a batch; the first writes the mean loss, the gradients and their norm."""
    join(rank, processes, port)
    model = FSDP2Strategy(**settings).shard(build(host).train())
    share = BATCH // processes
    loss = model(images(32, 40, batch=BATCH)[rank * share : (rank + 1) * share])
    loss.backward()
    assert all(isinstance(p, DTensor) for p in model.parameters())
    grads = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    dist.all_reduce(loss.data)
    if rank == 0:
        torch.save((loss.data / processes, grads, norm), path)
    dist.barrier()
    os._exit(0)
