"""Reads checkpoint files without running their code, and writes them atomically, never over an existing file."""

import argparse
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from mmengine.runner.checkpoint import get_torch_safe_globals
from torch import Tensor

from vitplug.files.named import check_weights, is_sharded

from .downloads import fetch

# What torch builds from a file beside its own classes: mmengine's records, arrays, and the options in DeiT's files.
SAFE = [*get_torch_safe_globals(), argparse.Namespace, *{type(np.dtype(kind)) for kind in np.sctypeDict.values()}]

# Keys of the weights in a checkpoint. Averaged weights come first: timm and DeiT evaluate them.
# mmengine's `state_dict` already has the averaged weights.
WEIGHT_KEYS = ('state_dict_ema', 'model_ema', 'state_dict', 'model', 'ema', 'module', 'model_state_dict', 'model_state')


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
        ValueError: If the file is empty, truncated or not a checkpoint, or if reading it would run code.
        ImportError: If it is a safetensors file and the package safetensors is not installed.
    """
    path = Path(path)
    check_weights(str(path), option='checkpoint')
    if is_sharded(path):
        from .shards import REST, read_whole  # torch.distributed.checkpoint, which few need

        return read_whole(path, read_checkpoint(path / REST, unsafe_unpickle))
    if path.stat().st_size == 0:
        raise ValueError(f'{path} is empty (0 bytes): copy or download it again')
    content = READERS.get(path.suffix, _read_torch)(path, unsafe_unpickle)
    if not isinstance(content, Mapping):
        raise ValueError(
            f'{path} holds a {type(content).__name__}: expected a state dict, or a dict with one under any of '
            f'{list(WEIGHT_KEYS)}'
        )
    return content


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
    keys = []
    while (key := _weight_key(content)) is not None:
        keys.append(key)
        content = content[key]
    if not any(isinstance(value, Tensor) for value in content.values()):
        content = {f'{name}.{key}': value for name, part in _dicts(content) for key, value in part.items()}
    state = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if not state:
        raise ValueError(
            f'{path} holds no weights: its keys are {some_of(content)}; expected tensors, or a dict of tensors under '
            f'any of {list(WEIGHT_KEYS)}'
        )
    others = sorted(key for key in content.keys() - state.keys() if _names_a_tensor(key))
    if others:
        raise ValueError(
            f'{path}: {some_of(others)} should be tensors, but {shown(others[0])} is a '
            f'{type(content[others[0]]).__name__}: get an intact copy of the file'
        )
    if strange := {key: kind for key, value in state.items() if (kind := _wrong_kind(value))}:
        key = next(iter(strange))
        raise ValueError(f'{path}: {shown(key)} {strange[key]}: expected dense tensors of real numbers')
    check_finite(state, path)
    return {WRAPPERS.sub('', key): value for key, value in state.items()}, '.'.join(keys)


# What torch.compile, activation checkpointing and FSDP put into the names of what they wrap, inside a model as well.
WRAPPERS = re.compile(r'(?:(?<=\.)|^)(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.')


def _dicts(content: Mapping) -> list[tuple[str, Mapping]]:
    """The state dicts of a file with several, such as DINO's of a student and a teacher, by their names."""
    return [
        (str(name), part)
        for name, part in content.items()
        if isinstance(part, Mapping) and any(isinstance(value, Tensor) for value in part.values())
    ]


def _wrong_kind(tensor: Tensor) -> str:
    """A description of an unsupported tensor; '' for all others."""
    if tensor.is_meta:
        return 'is a meta tensor, which has no numbers'
    if tensor.is_complex():
        return 'is a complex tensor'
    return '' if tensor.layout == torch.strided and not tensor.is_quantized else 'is a sparse or quantized tensor'


def _names_a_tensor(key) -> bool:
    """True if a key of a state dict names a parameter or buffer; the extra state of modules can be any object."""
    return isinstance(key, str) and '.' in key and not key.endswith('_extra_state')


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


# Allowed types of weights; torch would silently cast any other type.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_numbers(state: Mapping[str, Tensor], own: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Checks that the floating point tensors of a model are also floating point in the checkpoint.

    Args:
        state: Tensors of the checkpoint.
        own: Tensors of the model.
        path: The checkpoint, for the error.

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


def _weight_key(content: Mapping) -> str | None:
    return next((key for key in WEIGHT_KEYS if isinstance(content.get(key), Mapping)), None)


def local_file(checkpoint: str | os.PathLike) -> Path:
    """The local file of a path or an address; see :func:`.downloads.fetch`.

    Raises:
        ValueError or OSError: If the address cannot be downloaded.
    """
    return fetch(str(checkpoint)) if '://' in str(checkpoint) else Path(checkpoint)


# Errors that tensors of unexpected shapes cause.
WRONG_SHAPES = (ValueError, RuntimeError, IndexError, TypeError)


# --- reading ---

# How a file of torch.save before torch 1.6 begins: with a number.
MAGIC = b'l\xfc\x9cF\xf9 j\xa8P\x19'


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
                f'{path} would run {shown(next(filter(None, code.groups())))} when it is read, and could run any code: '
                'nothing was run. Get a file that has only weights; only if you trust its author, pass '
                'unsafe_unpickle=True (--unsafe-unpickle)'
            ) from error
        raise _unreadable(path, error) from error


def _read_safetensors(path: Path, *_: bool) -> dict:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ImportError(f'{path}: to read it, pip install safetensors') from error
    try:
        with safe_open(path, framework='pt') as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)
            meta = json.loads((file.metadata() or {}).get('meta', '{}'))
    except (PermissionError, MemoryError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from error
    return dict(state_dict=state, meta=meta)


READERS: dict[str, Callable] = {'.safetensors': _read_safetensors}


def _unreadable(path: Path, error: Exception) -> ValueError:
    # The first sentence only: in the next ones torch advises to load the file with weights_only=False.
    reason = re.split(r'\.\s|\n', str(error))[0]
    return ValueError(
        f'{path} is truncated or no checkpoint ({type(error).__name__}: {shown(reason)}): copy or download it again; '
        'allowed are files of torch.save and .safetensors'
    )


MAX_NAME_LENGTH = 120


def shown(name: str) -> str:
    """A name from a file, for a message: shortened, and without control characters."""
    short = name if len(name) <= MAX_NAME_LENGTH else f'{name[:MAX_NAME_LENGTH]}...'
    return short if short.isprintable() else ascii(short)


def some_of(names: Iterable, count: int = 5) -> str:
    """The first few names, for a message."""
    names = [shown(str(name)) for name in names]
    return ', '.join(names[:count]) + (', ...' if len(names) > count else '') if names else 'none'


# --- writing ---


def write_new(
    state: Mapping[str, Tensor], path: str | os.PathLike, meta: Mapping | None = None, add_hash: bool = False
) -> Path:
    """Writes a state dict atomically into a new file.

    Args:
        state: The tensors.
        path: The file; its suffix, ``.pth``, ``.pt`` or ``.safetensors``, determines the format.
        meta: Information beside the weights; without it, a torch file is the bare state dict.
        add_hash: If True, the first 8 digits of the file's SHA-256 are added to its name.

    Returns:
        The path of the new file.

    Raises:
        FileExistsError: If the file exists; it is not changed.
        FileNotFoundError: If its folder does not exist.
        OSError: If it cannot be written, for example on a full disk.
        ValueError: If the suffix is unknown, or ``meta`` cannot be written in this format.
        ImportError: If this is a safetensors file and the package safetensors is not installed.
    """
    path = Path(path)
    check_new(path)
    part = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.part')
    try:
        _write(part, path, state, meta)
        if add_hash:
            path = path.with_stem(f'{path.stem}-{hashlib.sha256(part.read_bytes()).hexdigest()[:8]}')
        _move_new(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _write(part: Path, path: Path, state: Mapping[str, Tensor], meta: Mapping | None) -> None:
    """Writes the temporary file ``part``; errors name ``path``, because those of torch and safetensors do not."""
    tensors = {key: _own_copy(value) for key, value in state.items()}
    try:
        WRITERS[path.suffix](tensors, part, meta)
    except (ImportError, ValueError):
        raise
    except Exception as error:  # torch ends with a RuntimeError about positions in the file
        raise OSError(f'cannot write {path}: {_cause(error)}: free disk space, or choose another folder') from error


def _cause(error: BaseException) -> str:
    """The operating system's message if it caused the error, otherwise the error's first line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return shown((str(error).splitlines() or [type(error).__name__])[0])


def check_new(path: Path) -> None:
    """Checks that a checkpoint can be written to a path; called before anything is read.

    Raises:
        ValueError, FileExistsError or FileNotFoundError: As in :func:`write_new`.
    """
    if path.suffix not in WRITERS:
        raise ValueError(f'{path}: unknown suffix {path.suffix!r}; choose from {list(WRITERS)}')
    if path.exists():
        raise FileExistsError(f'{path} exists and is not overwritten: choose another name')
    if not path.parent.is_dir():
        raise FileNotFoundError(f'{path}: there is no folder {path.parent}; create it first')


def _move_new(part: Path, path: Path) -> None:
    """Renames a complete file, unless the new name exists."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise FileExistsError(f'{path} exists and is not overwritten: choose another name') from error
    except OSError:  # Some file systems have no links.
        check_new(path)
        part.rename(path)


def _own_copy(tensor: Tensor) -> Tensor:
    """A copy with its own storage: a view would be saved with the whole storage behind it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _write_torch(state: Mapping[str, Tensor], path: Path, meta: Mapping | None) -> None:
    # An open file, not a path: torch stores the name of a path, and equal weights would give unequal files.
    with open(path, 'xb') as file:
        torch.save(state if meta is None else dict(meta=dict(meta), state_dict=state), file)


def _write_safetensors(state: Mapping[str, Tensor], path: Path, meta: Mapping | None) -> None:
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise ImportError(f'{path}: to write it, pip install safetensors') from error
    metadata = dict(format='pt')
    if meta:
        metadata['meta'] = _to_json(meta)
    save_file(state, path, metadata)


def _to_json(meta: Mapping) -> str:
    try:
        return json.dumps(meta, default=lambda value: value.tolist())
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f'a .safetensors file cannot hold this meta ({error}): write a .pth file') from error


WRITERS: dict[str, Callable] = {'.pth': _write_torch, '.pt': _write_torch, '.safetensors': _write_safetensors}
