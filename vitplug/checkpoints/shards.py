"""Sharded checkpoints: folders that all processes of a training write, and that any number of processes reads.

::

    epoch_3.pth/
        .metadata     names, shapes and places of all sharded tensors (torch.distributed.checkpoint)
        __0_0.distcp  shards of process 0
        __1_0.distcp  shards of process 1
        rest.pth      everything else

The name of a sharded tensor is its place in the checkpoint, such as ``optimizer/state/0/exp_avg``. torch's own reader
unpickles the metadata, which may run code: read such folders of your own trainings only. Importing this module loads
torch.distributed.checkpoint.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

REST = 'rest.pth'


def sharded_parts(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, dict]]:
    """The parts of a checkpoint that hold tensors of parameters, with their places.

    These are the weights, their averages, and the optimizer's state of each parameter.
    """
    for place in ('state_dict', 'ema_state_dict'):
        if checkpoint.get(place) is not None:
            yield place, checkpoint[place]
    for index, state in (checkpoint.get('optimizer') or {}).get('state', {}).items():
        yield f'optimizer/state/{index}', state


def read_shards(folder: Path, rest: dict, allocate: Callable[..., Tensor] = torch.empty) -> dict[str, Any]:
    """The content of a sharded checkpoint.

    Args:
        folder: The folder.
        rest: The content of its :data:`REST`, which is completed.
        allocate: Gives memory for a tensor of a shape and ``dtype``: a whole one on the CPU, or the shard of this
            process.

    Raises:
        ValueError: If the folder is broken or lacks a file.
    """
    reader = dcp.FileSystemReader(folder)
    try:
        described = reader.read_metadata().state_dict_metadata
        tensors = {name: allocate(entry.size, dtype=entry.properties.dtype) for name, entry in described.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', 'torch.distributed is disabled')  # as meant: each process reads alone
            dcp.load(tensors, storage_reader=reader, no_dist=True)
        parts = dict(sharded_parts(rest))
        for name, tensor in tensors.items():
            place, _, key = name.rpartition('/')
            parts[place][key] = tensor
    except (Exception, CheckpointException) as error:  # whatever damaged files cause
        raise ValueError(
            f'{folder} cannot be read ({type(error).__name__}: {" ".join(str(error).split())[:300]}): it is damaged '
            'or not whole; go on from another checkpoint'
        ) from error
    return rest
