"""Checkpoint files: read without running their code, written whole and never over another file."""

import hashlib
import json
import os
import re
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.serialization import get_safe_globals, safe_globals

from vitplug.engine.checks import check_weights

from .downloads import fetch

# Where a checkpoint keeps its weights. Averaged ones come first: they are what timm and DeiT evaluate.
# mmengine's `state_dict` is the averaged one already.
WEIGHT_KEYS = ('state_dict_ema', 'model_ema', 'state_dict', 'model', 'ema', 'module')


def read_checkpoint(path: str | os.PathLike, unsafe_unpickle: bool = False) -> dict:
    """Reads a checkpoint file onto the CPU.

    Args:
        path: A ``.safetensors`` file, or what ``torch.save`` wrote, under any other name.
        unsafe_unpickle: Whether the file may run code of its own, as pickles can.

    Returns:
        The file's content; that of a safetensors file has the keys ``'state_dict'`` and ``'meta'``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, truncated or no checkpoint, or would have to run code.
        ImportError: If it is a safetensors file and the package safetensors is not installed.
    """
    path = Path(path)
    check_weights(str(path), option='checkpoint')
    if path.stat().st_size == 0:
        raise ValueError(f'{path} is empty (0 bytes): copy or download it again')
    check_packed(path)
    content = READERS.get(path.suffix, _read_torch)(path, unsafe_unpickle)
    check_sizes(content, path)
    if not isinstance(content, Mapping):
        raise ValueError(
            f'{path} holds a {type(content).__name__}: expected a state dict, or a dict with one under any of '
            f'{list(WEIGHT_KEYS)}'
        )
    return dict(content)


def find_weights(content: Mapping, path: str | os.PathLike) -> tuple[dict[str, Tensor], str]:
    """The state dict in a checkpoint.

    Args:
        content: What :func:`read_checkpoint` gave.
        path: The file, for the error.

    Returns:
        The tensors by key, and the names of the keys they lie under, such as ``'state_dict'``, or ``''``.

    Raises:
        ValueError: If there are no tensors.
    """
    keys = []
    while (key := _weight_key(content)) is not None:
        keys.append(key)
        content = content[key]
    state = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if not state:
        raise ValueError(
            f'{path} holds no weights: its keys are {some_of(content)}; expected tensors, or a dict of tensors under '
            f'any of {list(WEIGHT_KEYS)}'
        )
    return state, '.'.join(keys)


def find_meta(content: Mapping, path: str | os.PathLike) -> Mapping:
    """What a checkpoint says of itself beside its weights.

    Raises:
        ValueError: If that is no dict.
    """
    meta = content.get('meta') or {}
    if not isinstance(meta, Mapping):
        raise ValueError(f'{path}: its meta is a {type(meta).__name__}: expected a dict')
    return meta


def _weight_key(content: Mapping) -> str | None:
    return next((key for key in WEIGHT_KEYS if isinstance(content.get(key), Mapping)), None)


def local_file(checkpoint: str | os.PathLike) -> Path:
    """The file behind a path or an address; see :func:`.downloads.fetch`.

    Raises:
        ValueError or OSError: If an address gives no checkpoint.
    """
    return fetch(str(checkpoint)) if '://' in str(checkpoint) else Path(checkpoint)


# --- what a small file may not become ---

# How many times its file a checkpoint may fill in memory: tensors may share what they hold, but not for ever.
MOST_SHARED = 10
ALWAYS_ALLOWED = 64 * 2**20  # bytes


def check_packed(path: Path) -> None:
    """Checks that a file in torch's format is no zip bomb: torch.save packs nothing.

    Raises:
        ValueError: If it is larger inside than outside.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as file:
            inside = sum(entry.file_size for entry in file.infolist())
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise _unreadable(path, error) from error
    if inside > path.stat().st_size:
        raise ValueError(f'{path} {_swollen(path, inside)}: torch.save writes no such file; get another one')


def check_sizes(content: object, path: str | os.PathLike) -> None:
    """Checks that the tensors in a checkpoint do not say that they are far larger than the file.

    Raises:
        ValueError: If they do: to copy them would fill the memory.
    """
    seen: set[int] = set()
    waiting, total = [content], 0
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Tensor):
            total += part.nelement() * part.element_size()
        elif isinstance(part, Mapping):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
    if total > ALWAYS_ALLOWED + MOST_SHARED * Path(path).stat().st_size:
        raise ValueError(f'{path} {_swollen(path, total)}: no training writes such tensors; get another file')


def _swollen(path: str | os.PathLike, inside: int) -> str:
    return f'has {Path(path).stat().st_size:,} bytes and would fill {inside:,} in memory'


# --- reading ---


def _read_torch(path: Path, unsafe_unpickle: bool):
    listed = get_safe_globals()
    unlisted = [entry for entry in HARMLESS if entry not in listed]
    try:
        with safe_globals(unlisted):
            return torch.load(path, map_location='cpu', weights_only=not unsafe_unpickle, mmap=zipfile.is_zipfile(path))
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # A broken file can end in nearly any exception.
        refused = re.search(r'GLOBAL (\S+)', str(error))
        if refused:
            raise ValueError(
                f'{path} would have to run {refused.group(1)} to be read, and could run anything: nothing was run. '
                'Get a file with weights alone; only if you trust its author, pass unsafe_unpickle=True '
                '(--unsafe-unpickle)'
            ) from error
        raise _unreadable(path, error) from error


def _read_safetensors(path: Path, unsafe_unpickle: bool) -> dict:
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
    # The first sentence: torch goes on to advise reading the file with its code run.
    reason = re.split(r'\.\s|\n', str(error))[0]
    return ValueError(
        f'{path} is truncated or no checkpoint ({type(error).__name__}: {reason}): copy or download it again; '
        'allowed are files of torch.save and .safetensors'
    )


def some_of(names: Iterable, count: int = 5) -> str:
    """The first few names, for a message."""
    names = [str(name) for name in names]
    return ', '.join(names[:count]) + (', ...' if len(names) > count else '') if names else 'none'


# mmengine's checkpoints hold more than weights: numpy numbers, and the history of the logged ones. The former
# are read; what the latter needs (its class, and getattr, which could fetch anything) is replaced by blanks.


class _Blank:
    """Stands for an object that no weights depend on."""

    def __setstate__(self, state):
        pass


def _blank(*_):
    """Stands for a function that no weights depend on."""


def allowed_as(path: str, function: Callable) -> Callable:
    """A global that files know as ``path``. The pair ``(function, path)`` would do, but for older torch.

    Args:
        path: Module and name in the files.
        function: What is called, or built, in its place.
    """
    module, _, name = path.rpartition('.')
    if isinstance(function, type):
        return type(name, (function,), {'__module__': module, '__qualname__': name})

    def stand_in(*args):
        return function(*args)

    stand_in.__module__, stand_in.__name__, stand_in.__qualname__ = module, name, name
    return stand_in


def _harmless_globals() -> list[Callable]:
    array = np.array([0.0])
    rebuild, scalar = array.__reduce__()[0], array[0].__reduce__()[0]
    codes = np.typecodes['AllInteger'] + np.typecodes['AllFloat'] + '?US'
    cores = ('numpy._core', 'numpy.core')  # numpy 2's name and numpy 1's
    return [
        np.ndarray,
        np.dtype,
        *{type(np.dtype(code)) for code in codes},
        *(allowed_as(f'{core}.multiarray._reconstruct', rebuild) for core in cores),
        *(allowed_as(f'{core}.multiarray.scalar', scalar) for core in cores),
        allowed_as('mmengine.logging.history_buffer.HistoryBuffer', _Blank),
        allowed_as('argparse.Namespace', _Blank),
        allowed_as('builtins.getattr', _blank),
    ]


HARMLESS = _harmless_globals()


# --- writing ---


def write_new(
    state: Mapping[str, Tensor], path: str | os.PathLike, meta: Mapping | None = None, add_hash: bool = False
) -> Path:
    """Writes a state dict into a new file, whole or not at all.

    Args:
        state: The tensors.
        path: The file; its suffix, ``.pth``, ``.pt`` or ``.safetensors``, decides the format.
        meta: What is known beside the weights; without it, a torch file is the bare state dict.
        add_hash: Whether the first 8 digits of the file's SHA-256 are added to its name.

    Returns:
        The file written.

    Raises:
        FileExistsError: If the file exists; it is left as it is.
        FileNotFoundError: If its folder does not exist.
        ValueError: If the suffix is unknown, or ``meta`` cannot be written in this format.
        ImportError: If this is a safetensors file and the package safetensors is not installed.
    """
    path = Path(path)
    check_new(path)
    part = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.part')
    try:
        WRITERS[path.suffix]({key: _own_copy(value) for key, value in state.items()}, part, meta)
        if add_hash:
            path = path.with_stem(f'{path.stem}-{hashlib.sha256(part.read_bytes()).hexdigest()[:8]}')
        _place(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def check_new(path: Path) -> None:
    """Checks that a checkpoint can be written to a path, before anything is read.

    Raises:
        ValueError, FileExistsError or FileNotFoundError: as :func:`write_new` says.
    """
    if path.suffix not in WRITERS:
        raise ValueError(f'{path}: unknown suffix {path.suffix!r}; choose from {list(WRITERS)}')
    if path.exists():
        raise FileExistsError(f'{path} exists and is not overwritten: choose another name')
    if not path.parent.is_dir():
        raise FileNotFoundError(f'{path}: there is no folder {path.parent}; make it first')


def _place(part: Path, path: Path) -> None:
    """Gives a finished file its name, unless the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise FileExistsError(f'{path} exists and is not overwritten: choose another name') from error
    except OSError:  # Some file systems have no links.
        check_new(path)
        part.rename(path)


def _own_copy(tensor: Tensor) -> Tensor:
    """The tensor in storage of its own: a view's file would hold all that it is a view of."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _write_torch(state: Mapping[str, Tensor], path: Path, meta: Mapping | None) -> None:
    # Into an open file: into a path, torch writes the path's name, and equal weights would give unequal files.
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
