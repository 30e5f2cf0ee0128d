"""Reads checkpoint files without running their code, and finds their weights."""

import argparse
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from mmengine.runner.checkpoint import get_torch_safe_globals
from torch import Tensor

from vitplug.adapters.plugging import WEIGHT_KEYS, weights_in
from vitplug.files.named import check_weights, is_sharded

from .onnx_weights import read_onnx

# torch's variable that lets files run code.
NOT_ONLY_TENSORS = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'
# What torch builds from a file beside its own classes: mmengine's records, arrays, and the options in DeiT's files.
SAFE = [*get_torch_safe_globals(), argparse.Namespace, *{type(np.dtype(kind)) for kind in np.sctypeDict.values()}]
# What torch.compile, activation checkpointing and FSDP put into the names of what they wrap, inside a model as well,
# and DDP before all names.
WRAPPERS = re.compile(r'^module\.|(?:(?<=\.)|^)(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.')
#: Errors that tensors of unexpected shapes cause.
WRONG_SHAPES = (ValueError, RuntimeError, IndexError, TypeError)


def some_of(names: Iterable, count: int = 5) -> str:
    """The first few names, for a message."""
    names = [str(name) for name in names]
    return ', '.join(names[:count]) + (', ...' if len(names) > count else '') if names else 'none'


# --- reading ---


def local_file(checkpoint: str | os.PathLike) -> Path:
    """The local file of a path, or of an address, which torch.hub downloads once.

    Each address has a folder of its own: many files are called the same.
    """
    address = str(checkpoint)
    if '://' not in address:
        return Path(checkpoint)
    folder = Path(torch.hub.get_dir(), 'checkpoints', hashlib.sha256(address.encode()).hexdigest()[:16])
    file = folder / (Path(urlsplit(address).path).name or 'checkpoint')
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(address, str(file), progress=False)
    return file


def read_checkpoint(checkpoint: str | os.PathLike) -> Mapping:
    """Reads a checkpoint file onto the CPU, without running code in it unless torch's own variable says so.

    Args:
        checkpoint: Path or address of a ``.safetensors`` or ``.onnx`` file, of a file of ``torch.save`` with any other
            suffix, or path of the folder of a sharded checkpoint, whose tensors are put together.

    Returns:
        The file's content; of a safetensors or ONNX file its tensors.

    Raises:
        OSError: If there is no such file, or if an ONNX file has lost names of tensors.
        ValueError: If the file is truncated or not a checkpoint, or if reading it would run code.
    """
    path = local_file(checkpoint)
    check_weights(str(path), option='checkpoint')
    if is_sharded(path):
        from .shards import REST, read_shards  # torch.distributed.checkpoint, which few need

        return read_shards(path, read_checkpoint(path / REST))
    try:
        content = _read(path)
    except (OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # A broken file can raise nearly any exception.
        raise ValueError(f'{path} {_fault(str(error))}') from error
    if not isinstance(content, Mapping):
        raise ValueError(f'{path} holds a {type(content).__name__}: expected a dict of tensors, or one that holds it')
    return content


def _read(path: Path) -> Any:
    if path.suffix == '.onnx':
        return read_onnx(path)
    if path.suffix == '.safetensors':
        from safetensors.torch import load_file  # of timm and transformers

        return load_file(path)
    torch.serialization.add_safe_globals(SAFE)  # every time: mmengine's reading takes its own ones back
    return torch.load(str(path), map_location='cpu', weights_only=os.environ.get(NOT_ONLY_TENSORS) != '1')


def _fault(error: str) -> str:
    """Why a file cannot be read, and what to do, given the error of reading it."""
    if code := re.search(r'GLOBAL (\S+) was not|class (\S+) was found|Trying to call (\S+)', error):
        return (
            f'would run {next(filter(None, code.groups()))} when it is read, and could run any code: nothing was run. '
            f'Get a file that has only weights; only if you trust its author, set {NOT_ONLY_TENSORS}=1'
        )
    # The first sentence only: in the next ones torch advises to load the file with weights_only=False.
    reason = re.split(r'\.\s|\n', error)[0]
    return (
        f'is truncated or no checkpoint ({reason}): copy or download it again; allowed are files of torch.save, '
        ".safetensors and .onnx, no pickles of Python's, such as detectron2's"
    )


# --- weights ---


def find_weights(content: Mapping, path: str | os.PathLike) -> tuple[dict[str, Tensor], str]:
    """The state dict in a checkpoint.

    Args:
        content: The result of :func:`read_checkpoint`.
        path: The file, for the error.

    Returns:
        The tensors by key, and the place of the state dict in the checkpoint, such as ``'state_dict'``, or ``''``.

    Raises:
        ValueError: If there are no tensors, or if a number is not finite.
    """
    content, place = weights_in(content)
    if not any(isinstance(value, Tensor) for value in content.values()):  # as in DINO's files of student and teacher
        parts = {name: part for name, part in content.items() if isinstance(part, Mapping)}
        content = {f'{name}.{key}': value for name, part in parts.items() for key, value in part.items()} or content
    state = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if not state:
        raise ValueError(
            f'{path} holds no weights: its keys are {some_of(content)}; expected tensors, or a dict of tensors under '
            f'any of {list(WEIGHT_KEYS)}'
        )
    check_finite(state, path)
    return {WRAPPERS.sub('', key): value for key, value in state.items()}, place


def check_finite(state: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Checks that all numbers are finite.

    Raises:
        ValueError: If one is not; names the file and the first few tensors.
    """
    # torch cannot tell it of float8.
    broken = [key for key, t in state.items() if not (t.float() if t.itemsize == 1 else t).isfinite().all()]
    if broken:
        raise ValueError(
            f'{path} has numbers that are not finite (NaN or infinite) in {len(broken)} of {len(state)} tensors: '
            f'{some_of(broken)}; its training had diverged: use an earlier checkpoint'
        )
