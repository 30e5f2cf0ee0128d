"""Reads checkpoint files without running their code, and writes whole ones, never over an existing file."""

import argparse
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from mmengine.runner.checkpoint import get_torch_safe_globals
from torch import Tensor

from vitplug.files.named import check_weights, is_sharded
from vitplug.files.whole import write_whole

from .downloads import fetch

# What torch builds from a file beside its own classes: mmengine's records, arrays, and the options in DeiT's files.
SAFE = [*get_torch_safe_globals(), argparse.Namespace, *{type(np.dtype(kind)) for kind in np.sctypeDict.values()}]
# Keys of the weights in a checkpoint. Averaged weights come first: timm and DeiT evaluate them.
# mmengine's `state_dict` already has the averaged weights.
WEIGHT_KEYS = ('state_dict_ema', 'model_ema', 'state_dict', 'model', 'ema', 'module', 'model_state_dict', 'model_state')
# What torch.compile, activation checkpointing and FSDP put into the names of what they wrap, inside a model as well.
WRAPPERS = re.compile(r'(?:(?<=\.)|^)(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.')
# Allowed types of weights; torch would silently cast any other type.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Errors that tensors of unexpected shapes cause.
WRONG_SHAPES = (ValueError, RuntimeError, IndexError, TypeError)
# How a file of torch.save before torch 1.6 begins: with a number.
MAGIC = b'l\xfc\x9cF\xf9 j\xa8P\x19'
SUFFIXES = ('.pth', '.pt', '.safetensors')


def some_of(names: Iterable, count: int = 5) -> str:
    """The first few names, for a message."""
    names = [str(name) for name in names]
    return ', '.join(names[:count]) + (', ...' if len(names) > count else '') if names else 'none'


# --- reading ---


def local_file(checkpoint: str | os.PathLike) -> Path:
    """The local file of a path or an address; see :func:`.downloads.fetch`."""
    return fetch(str(checkpoint)) if '://' in str(checkpoint) else Path(checkpoint)


def read_checkpoint(path: str | os.PathLike, unsafe_unpickle: bool = False) -> Mapping:
    """Reads a checkpoint file onto the CPU.

    Args:
        path: A ``.safetensors`` file, a file of ``torch.save`` with any other suffix, or the folder of a sharded
            checkpoint, whose tensors are put together.
        unsafe_unpickle: If True, a pickle may run code.

    Returns:
        The file's content; for a safetensors file with the keys ``'state_dict'`` and ``'meta'``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated or not a checkpoint, or if reading it would run code.
    """
    path = Path(path)
    check_weights(str(path), option='checkpoint')
    if is_sharded(path):
        from .shards import REST, read_whole  # torch.distributed.checkpoint, which few need

        return read_whole(path, read_checkpoint(path / REST, unsafe_unpickle))
    content = _read_safetensors(path) if path.suffix == '.safetensors' else _read_torch(path, unsafe_unpickle)
    if not isinstance(content, Mapping):
        raise ValueError(
            f'{path} holds a {type(content).__name__}: expected a state dict, or a dict with one under any of '
            f'{list(WEIGHT_KEYS)}'
        )
    return content


def _read_torch(path: Path, unsafe_unpickle: bool):
    with open(path, 'rb') as file:
        begin = file.read(32)
    if begin.startswith(b'\x80') and MAGIC not in begin:
        raise ValueError(
            f"{path} is a pickle of Python's, such as detectron2's files, which can run any code; expected one of "
            'torch.save. Only if you trust its author: python -c "import pickle, torch; c = pickle.load(open('
            f"'{path}', 'rb')); torch.save({{k: torch.as_tensor(v) for k, v in c.get('model', c).items()}}, "
            "'NEW.pth')\" writes NEW.pth"
        )
    torch.serialization.add_safe_globals(SAFE)  # every time: mmengine's reading takes its own ones back
    try:
        return torch.load(str(path), map_location='cpu', weights_only=not unsafe_unpickle)
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # A broken file can raise nearly any exception.
        if code := re.search(r'GLOBAL (\S+) was not|class (\S+) was found|Trying to call (\S+)', str(error)):
            raise ValueError(
                f'{path} would run {next(filter(None, code.groups()))} when it is read, and could run any code: '
                'nothing was run. Get a file that has only weights; only if you trust its author, pass '
                'unsafe_unpickle=True (--unsafe-unpickle)'
            ) from error
        raise _unreadable(path, error) from error


def _read_safetensors(path: Path) -> dict:
    from safetensors import safe_open

    try:
        with safe_open(path, framework='pt') as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)
            return dict(state_dict=state, meta=json.loads((file.metadata() or {}).get('meta', '{}')))
    except (PermissionError, MemoryError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    # The first sentence only: in the next ones torch advises to load the file with weights_only=False.
    reason = re.split(r'\.\s|\n', str(error))[0]
    return ValueError(
        f'{path} is truncated or no checkpoint ({type(error).__name__}: {reason}): remove it, and copy or download it '
        'again; allowed are files of torch.save and .safetensors'
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
        ValueError: If there are no tensors, if the key of a tensor has another value, or if a number is not finite.
    """
    place = []
    while (key := next((key for key in WEIGHT_KEYS if isinstance(content.get(key), Mapping)), None)) is not None:
        place.append(key)
        content = content[key]
    if not any(isinstance(value, Tensor) for value in content.values()):  # as in DINO's files of student and teacher
        parts = {name: part for name, part in content.items() if isinstance(part, Mapping)}
        parts = {name: part for name, part in parts.items() if any(isinstance(v, Tensor) for v in part.values())}
        content = {f'{name}.{key}': value for name, part in parts.items() for key, value in part.items()}
    state = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if not state:
        raise ValueError(
            f'{path} holds no weights: its keys are {some_of(content)}; expected tensors, or a dict of tensors under '
            f'any of {list(WEIGHT_KEYS)}'
        )
    # The extra state of modules can be any object.
    others = [key for key in content.keys() - state.keys() if '.' in str(key) and not key.endswith('_extra_state')]
    if others:
        raise ValueError(
            f'{path}: {some_of(sorted(others))} should be tensors, but {min(others)} is a '
            f'{type(content[min(others)]).__name__}: get an intact copy of the file'
        )
    for key, value in state.items():
        if value.is_meta or value.is_complex() or value.is_quantized or value.layout != torch.strided:
            kind = 'meta' if value.is_meta else 'complex' if value.is_complex() else 'sparse or quantized'
            raise ValueError(f'{path}: {key} is a {kind} tensor: expected dense tensors of real numbers')
    check_finite(state, path)
    return {WRAPPERS.sub('', key): value for key, value in state.items()}, '.'.join(place)


def check_finite(state: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Checks that all numbers are finite.

    Raises:
        ValueError: If one is not; names the file and the first few tensors.
    """
    broken = [key for key, value in state.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(
            f'{path} has numbers that are not finite (NaN or infinite) in {len(broken)} of {len(state)} tensors: '
            f'{some_of(broken)}; its training had diverged: use an earlier checkpoint'
        )


def check_numbers(state: Mapping[str, Tensor], own: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Checks that the floating point tensors of a model, ``own``, are also floating point in the checkpoint.

    Raises:
        ValueError: If one is not; names the file, the tensor and its type.
    """
    for key, value in state.items():
        if key in own and own[key].is_floating_point() and value.dtype not in FLOATS:
            raise ValueError(
                f'{path}: {key} is stored as {value.dtype}: expected one of {[str(kind) for kind in FLOATS]}; '
                'get a file with the original, unconverted weights'
            )


def find_meta(content: Mapping, path: str | os.PathLike) -> Mapping:
    """The ``meta`` dict of a checkpoint, empty if it has none.

    Raises:
        ValueError: If it is not a dict.
    """
    meta = content.get('meta') or {}
    if not isinstance(meta, Mapping):
        raise ValueError(f'{path}: its meta is a {type(meta).__name__}: expected a dict')
    return meta


# --- writing ---


def write_new(state: Mapping[str, Tensor], path: str | os.PathLike, meta: Mapping | None = None) -> Path:
    """Writes a state dict into a new file, which is never half there.

    Args:
        state: The tensors.
        path: The file; its suffix, ``.pth``, ``.pt`` or ``.safetensors``, determines the format.
        meta: Information beside the weights; without it, a torch file is the bare state dict.

    Raises:
        ValueError, FileExistsError or FileNotFoundError: As :func:`check_new`; a ValueError also if ``meta`` cannot be
            written in this format.
    """
    path = Path(path)
    check_new(path)
    # Copies: a view would be saved with the whole storage behind it.
    tensors = {key: value.detach().cpu().clone(memory_format=torch.contiguous_format) for key, value in state.items()}
    if path.suffix == '.safetensors':
        from safetensors.torch import save

        try:
            text = dict(meta=json.dumps(meta, default=lambda value: value.tolist())) if meta else {}
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f'a .safetensors file cannot hold this meta ({error}): write a .pth file') from error
        data = save(tensors, dict(format='pt', **text))
    else:
        buffer = io.BytesIO()
        torch.save(tensors if meta is None else dict(meta=dict(meta), state_dict=tensors), buffer)
        data = buffer.getvalue()
    write_whole(path, lambda part: part.write_bytes(data))
    return path


def check_new(path: Path) -> None:
    """Checks that a checkpoint can be written to a path; called before anything is read.

    Raises:
        ValueError: If the suffix is unknown.
        FileExistsError: If the file exists.
        FileNotFoundError: If its folder does not exist.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f'{path}: unknown suffix {path.suffix!r}; choose from {list(SUFFIXES)}')
    if path.exists():
        raise FileExistsError(f'{path} exists and is not overwritten: choose another name')
    if not path.parent.is_dir():
        raise FileNotFoundError(f'{path}: there is no folder {path.parent}; create it first')
