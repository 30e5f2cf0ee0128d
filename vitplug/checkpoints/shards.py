"""Sharded checkpoints: folders that all processes of a training write, and that any number of processes reads.

::

    epoch_3.pth/
        .metadata     names, shapes and places of all sharded tensors (torch.distributed.checkpoint)
        __0_0.distcp  shards of process 0
        __1_0.distcp  shards of process 1
        rest.pth      everything else; a sharded tensor is a text there, SHARD and its name in the metadata

A pickle may run code when it is read: that of the metadata is read with its own classes only, the rest as any
checkpoint. Importing this module loads torch.distributed.checkpoint.
"""

import pickle
import warnings
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path, PurePath
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from vitplug.files.named import METADATA

REST = 'rest.pth'
# What stands in the rest for a sharded tensor, before its name in the metadata.
SHARD = 'shard:'

# Classes in the metadata that torch writes.
CLASSES = {
    *(f'torch.distributed.checkpoint.metadata.{name}' for name in (
        'Metadata', 'MetadataIndex', 'StorageMeta', 'TensorStorageMetadata', 'ChunkStorageMetadata',
        'TensorProperties', '_MEM_FORMAT_ENCODING',
    )),
    'torch.distributed.checkpoint.filesystem._StorageInfo',
    'torch.Size',
    'torch.serialization._get_layout',
    'collections.OrderedDict',
}  # fmt: skip


def read_shards(folder: Path, rest: Mapping, allocate: Callable[[torch.Size, torch.dtype], Tensor]) -> dict[str, Any]:
    """The content of a sharded checkpoint.

    Args:
        folder: The folder.
        rest: The content of its :data:`REST`.
        allocate: Gives memory for a tensor of a shape and type: a whole one, or the shard of this process.

    Raises:
        ValueError: If the folder is broken, lacks a file, or reading it would run code.
    """
    reader = _Reader(folder)
    try:
        described = reader.read_metadata().state_dict_metadata
        tensors = {name: allocate(entry.size, entry.properties.dtype) for name, entry in described.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', 'torch.distributed is disabled')  # as meant: each process reads alone
            dcp.load(tensors, storage_reader=reader, no_dist=True)
    except ValueError:
        raise
    except (Exception, CheckpointException) as error:  # whatever damaged pickles and files cause
        raise ValueError(
            f'{folder} cannot be read ({type(error).__name__}: {" ".join(str(error).split())[:300]}): it is damaged '
            'or not whole; go on from another checkpoint'
        ) from error

    def fill(leaf: Any, place: str) -> Any:
        if not isinstance(leaf, str) or not leaf.startswith(SHARD):
            return leaf
        name = leaf.removeprefix(SHARD)
        if name not in tensors:
            raise ValueError(f'{folder} has no shards of {name}: copy the whole folder again')
        return tensors[name]

    return with_leaves(rest, fill)


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


class _Reader(dcp.FileSystemReader):
    """torch's reader; its metadata may name no other classes than torch's own, and no files elsewhere."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with open(Path(self.path, METADATA), 'rb') as file:
            metadata = _MetadataPickle(file).load()
        if not isinstance(metadata, Metadata):
            raise ValueError(f"{self.path}: its {METADATA} is a {type(metadata).__name__}: expected torch's Metadata")
        self._check(metadata)
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata

    def _check(self, metadata: Metadata) -> None:
        """Checks that the tensors fill no more memory than their files, which lie in the folder."""
        size = 0
        for name, entry in metadata.state_dict_metadata.items():
            if not isinstance(entry, TensorStorageMetadata):
                raise ValueError(f'{self.path}: {name} is no tensor, and is not read: it may run code')
            size += prod(entry.size) * entry.properties.dtype.itemsize
        names = {info.relative_path for info in metadata.storage_data.values()}
        if strange := sorted(name for name in names if PurePath(name).name != name):
            raise ValueError(f'{self.path}: its {METADATA} names {strange[0]!r}: expected files in the folder')
        if missing := sorted(name for name in names if not Path(self.path, name).is_file()):
            raise ValueError(f'{self.path} lacks {", ".join(missing[:3])}: copy the whole folder again')
        present = sum(Path(self.path, name).stat().st_size for name in names)
        if size > present:
            raise ValueError(
                f'{self.path} describes {size:,} bytes of tensors, and its files hold {present:,}: damaged'
            )


class _MetadataPickle(pickle.Unpickler):
    """Reads the metadata without running code that it may hold."""

    def find_class(self, module: str, name: str) -> Any:
        if module == 'pathlib' or module.startswith('pathlib.'):  # where the folder once was
            return PurePath
        if f'{module}.{name}' in CLASSES or (module == 'torch' and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise ValueError(f'its {METADATA} would run {module}.{name}: no checkpoint of torch does; use another one')
