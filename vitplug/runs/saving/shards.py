"""Writes sharded checkpoints, and splits whole ones: see :mod:`vitplug.checkpoints.shards`."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from mmengine import dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor, distribute_tensor

from vitplug.checkpoints.shards import REST, SHARD, with_leaves
from vitplug.files.atomic import clear_folder, put_in_place
from vitplug.files.whole import PARTIAL

from ..processes import any_process


@dataclass(frozen=True)
class Unnamed:
    """A sharded checkpoint that has no name yet, as it may still be written.

    Attributes:
        target: The folder that it will be.
        written: Its writing in the background; None if all is written.
    """

    target: Path
    written: Future | None = None

    def is_written(self) -> bool:
        """Whether all processes have written their shards; every process has to ask."""
        return not any_process(self.written is not None and not self.written.done())

    def name(self) -> None:
        """Waits until it is written, and gives it its name; a folder of this name is replaced. All processes call it.

        Raises:
            OSError: In every process, if one cannot write.
        """
        if self.written is not None:
            with _of_all_processes(self.target):
                self.written.result()
        if dist.is_main_process():
            put_in_place(_partial(self.target), self.target)


def write_shards(checkpoint: Mapping[str, Any], folder: str, group: ProcessGroup | None = None) -> Unnamed:
    """Writes a checkpoint as a folder under another name; every process has to call this, and writes its shards.

    Args:
        checkpoint: The content, with sharded tensors as DTensors.
        folder: The folder, on a file system that all processes share.
        group: All processes, over gloo, to write shards in the background, from a copy in the memory of the CPU; None
            to wait for them.

    Raises:
        OSError: In every process, if one cannot write.
    """
    target = Path(folder)
    tensors: dict[str, Tensor] = {}

    def take_out(leaf: Any, place: str) -> Any:
        if not isinstance(leaf, DTensor):
            return _on_cpu(leaf)
        tensors[place] = leaf.detach()
        return f'{SHARD}{place}'

    _begin(_partial(target), with_leaves(checkpoint, take_out))
    with _of_all_processes(target):
        writer = dcp.FileSystemWriter(_partial(target))
        if group is not None:
            return Unnamed(target, dcp.async_save(tensors, storage_writer=writer, process_group=group))
        dcp.save(tensors, storage_writer=writer)
    return Unnamed(target)


def _partial(target: Path) -> Path:
    return target.with_name(PARTIAL.format(target.name))


def _begin(partial: Path, rest: Mapping[str, Any]) -> None:
    """The first process makes the folder, and writes what is not sharded."""
    failed = None
    if dist.is_main_process():
        try:
            clear_folder(partial)
            partial.mkdir(parents=True)
            with open(partial / REST, 'xb') as file:
                torch.save(rest, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:  # torch's writer has no OSError for a full disk
            failed = error
    if any_process(failed is not None):
        raise OSError(
            getattr(failed, 'errno', None), f'process 0: {failed or "cannot write"}', str(partial)
        ) from failed


@contextmanager
def _of_all_processes(target: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointException as error:
        # By process, each with its traceback.
        rank, (reason, _) = next(iter(error.failures.items()))
        raise OSError(getattr(reason, 'errno', None), f'process {rank}: {reason}', str(target)) from error


def gathered(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """Content with whole tensors on the CPU in place of DTensors, in the first process; None in their place elsewhere.

    Every process has to call this. One tensor at a time is whole in the other processes.
    """

    def gather(leaf: Any, place: str) -> Any:
        if not isinstance(leaf, DTensor):
            return _on_cpu(leaf)
        whole = leaf.detach().full_tensor()
        return whole.cpu() if dist.is_main_process() else None

    return with_leaves(checkpoint, gather)


def _on_cpu(leaf: Any) -> Any:
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def split(checkpoint: dict[str, Any], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Puts this process's shards in place of the whole tensors of a checkpoint, where the model's own are sharded.

    Args:
        checkpoint: The content of a file; changed in place.
        model: The sharded model.
        optimizers: The optimizers; the states of only one are split.
    """
    sharded = {name: value for name, value in model.state_dict().items() if isinstance(value, DTensor)}
    for key in ('state_dict', 'ema_state_dict', 'gradients'):
        weights = checkpoint.get(key)
        for name, value in weights.items() if isinstance(weights, Mapping) else ():
            weights[name] = _like(value, sharded.get(str(name).removeprefix('module.')))
    states = (checkpoint.get('optimizer') or {}).get('state')
    if len(optimizers) != 1 or not isinstance(states, Mapping):
        return
    parameters = [p for group in optimizers[0].param_groups for p in group['params']]
    for index, state in states.items():
        if isinstance(state, dict) and isinstance(index, int) and index < len(parameters):
            state.update({name: _like(value, parameters[index]) for name, value in state.items()})


def _like(value: Any, sharded: Any) -> Any:
    """A whole tensor in the shards of another one of its shape; anything else as it is."""
    if not isinstance(value, Tensor) or not isinstance(sharded, DTensor) or value.shape != sharded.shape:
        return value
    value = value.to(sharded.device)
    return distribute_tensor(value, sharded.device_mesh, sharded.placements, src_data_rank=None)
