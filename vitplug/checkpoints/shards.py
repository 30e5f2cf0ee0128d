"""Sharded checkpoints: folders that all processes of a training write, and that any number of processes reads.

::

    epoch_3.pth/
        .metadata     names, shapes and places of all sharded tensors (torch.distributed.checkpoint)
        __0_0.distcp  shards of process 0
        __1_0.distcp  shards of process 1
        rest.pth      everything else; a sharded tensor is a text there, SHARD and its name in the metadata

torch's own reader unpickles the metadata, which may run code: read such folders of your own trainings only. Importing
this module loads torch.distributed.checkpoint.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

REST = 'rest.pth'
# What stands in the rest for a sharded tensor, before its name in the metadata.
SHARD = 'shard:'


def read_shards(folder: Path, rest: Mapping, allocate: Callable[[torch.Size, torch.dtype], Tensor]) -> dict[str, Any]:
    """The content of a sharded checkpoint.

    Args:
        folder: The folder.
        rest: The content of its :data:`REST`.
        allocate: Gives memory for a tensor of a shape and type: a whole one, or the shard of this process.

    Raises:
        ValueError: If the folder is broken or lacks a file.
    """
    reader = dcp.FileSystemReader(folder)
    try:
        described = reader.read_metadata().state_dict_metadata
        tensors = {name: allocate(entry.size, entry.properties.dtype) for name, entry in described.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', 'torch.distributed is disabled')  # as meant: each process reads alone
            dcp.load(tensors, storage_reader=reader, no_dist=True)
        return with_leaves(rest, lambda leaf, _: tensors[leaf[len(SHARD) :]] if _is_shard(leaf) else leaf)
    except (Exception, CheckpointException) as error:  # whatever damaged files cause
        raise ValueError(
            f'{folder} cannot be read ({type(error).__name__}: {" ".join(str(error).split())[:300]}): it is damaged '
            'or not whole; go on from another checkpoint'
        ) from error


def _is_shard(leaf: Any) -> bool:
    return isinstance(leaf, str) and leaf.startswith(SHARD)


def read_whole(folder: Path, rest: Mapping) -> dict[str, Any]:
    """The content of a sharded checkpoint with whole tensors on the CPU, as :func:`read_shards`."""
    return read_shards(folder, rest, lambda size, dtype: torch.empty(size, dtype=dtype))


def with_leaves(node: Any, change: Callable[[Any, str], Any], place: str = '') -> Any:
    """Content with ``change(leaf, place)`` for each leaf; a place is such as ``'optimizer/state/0/exp_avg'``."""
    if isinstance(node, list | tuple):
        return type(node)(with_leaves(value, change, f'{place}/{key}') for key, value in enumerate(node))
    if not isinstance(node, Mapping):
        return change(node, place.removeprefix('/'))
    changed = type(node)((key, with_leaves(value, change, f'{place}/{key}')) for key, value in node.items())
    if hasattr(node, '_metadata'):  # the versions of modules
        changed._metadata = node._metadata
    return changed
