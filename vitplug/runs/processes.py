"""What the processes of one training decide together."""

import torch
from mmengine import dist


def any_process(flag: bool) -> bool:
    """Whether any process has the flag. Every process has to ask, at the same place."""
    if dist.get_world_size() == 1:
        return flag
    together = torch.tensor(int(flag), device=dist.get_comm_device())
    dist.all_reduce(together, op='max')
    return bool(together)
