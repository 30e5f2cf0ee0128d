"""What each of two processes runs in a test: a module of its own, for processes import it anew."""

import os

import torch
import torch.distributed as dist
from adapters.foreign import TOGETHER, images, plugged, timm_model
from torch.nn.parallel import DistributedDataParallel


def half_step(rank: int, port: int, path: str) -> None:
    """One of two processes; the first writes the gradients of the mean over both halves of a batch."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=2)
    model = plugged(timm_model('vit_tiny_patch16_224'), TOGETHER).train()
    model.set_grad_checkpointing(True)
    # Every parameter must take part: unused ones would make this fail.
    model = DistributedDataParallel(model, find_unused_parameters=False)
    model(images(4)[2 * rank : 2 * rank + 2]).square().sum().backward()
    if rank == 0:
        torch.save({name: p.grad for name, p in model.module.named_parameters()}, path)
    dist.destroy_process_group()
    # Torch can wait for ever where a wrapper in use until now is freed.
    os._exit(0)
