"""Reads checkpoint files without running their code, and writes them atomically, never over an existing file."""

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

from vitplug.errors.full_disks import free_space
from vitplug.files.named import check_weights, is_sharded

from .data_pickle import CodeRefused, Pending, Unsupported
from .downloads import fetch
from .torch_file import max_bytes, read_torch_file

# Keys of the weights in a checkpoint. Averaged weights come first: timm and DeiT evaluate them.
# mmengine's `state_dict` already has the averaged weights.
WEIGHT_KEYS = ('state_dict_ema', 'model_ema', 'state_dict', 'model', 'ema', 'module', 'model_state_dict', 'model_state')


def read_checkpoint(path: str | os.PathLike, unsafe_unpickle: bool = False, in_memory: bool = False) -> Mapping:
    """Reads a checkpoint file onto the CPU.

    Args:
        path: A ``.safetensors`` file, a file of ``torch.save`` with any other suffix, or the folder of a sharded
            checkpoint, whose tensors are put together.
        unsafe_unpickle: If True, a pickle may run code.
        in_memory: If True, tensors are copied into memory. Otherwise they are mapped, and the file must not change
            while they are used.

    Returns:
        The file's content; for a safetensors file with the keys ``'state_dict'`` and ``'meta'``. Records of mmengine
        are :class:`~vitplug.checkpoints.data_pickle.History`. Other objects that the weights do not depend on are None.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, truncated or not a checkpoint, if reading it would run code, if a tensor is
            not a dense tensor of real numbers, or if the content is too large or too deeply nested.
        ImportError: If it is a safetensors file and the package safetensors is not installed.
    """
    path = Path(path)
    check_weights(str(path), option='checkpoint')
    if is_sharded(path):
        from .shards import REST, read_whole  # torch.distributed.checkpoint, which few need

        return read_whole(path, read_checkpoint(path / REST, unsafe_unpickle, in_memory))
    if path.stat().st_size == 0:
        raise ValueError(f'{path} is empty (0 bytes): copy or download it again')
    check_packed(path)
    content = READERS.get(path.suffix, _read_torch)(path, unsafe_unpickle, in_memory)
    check_content(content, path)
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
    check_finite(state, path)
    return state, '.'.join(keys)


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


# --- checks of untrusted files ---

# Errors that tensors of unexpected shapes cause.
WRONG_SHAPES = (ValueError, RuntimeError, IndexError, TypeError)

# Limits for the number of entries in all containers, counted once per reference, and for the nesting of containers.
MAX_ENTRIES = 1_000_000
MAX_DEPTH = 50
SHOWN_DEPTH = 8  # names of a location in a message


def check_packed(path: Path) -> None:
    """Checks that a file in torch's format is not a zip bomb: torch.save does not compress.

    Raises:
        ValueError: If the content is larger than the file.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as file:
            inside = sum(entry.file_size for entry in file.infolist())
    except PermissionError:
        raise
    except Exception as error:  # names of entries in another encoding, truncated entries
        raise _unreadable(path, error) from error
    if inside > path.stat().st_size:
        raise ValueError(f'{path} {_describe_size(path, inside)}: torch.save writes no such file; get another one')


def check_content(content: object, path: str | os.PathLike) -> None:
    """Checks the size and nesting of a checkpoint's content, and that its tensors are dense tensors of real numbers.

    Raises:
        ValueError: If there are too many entries, if containers are nested too deeply or contain themselves, if a key
            has unprintable characters, if a tensor is of another kind, or if tensors and arrays are far larger than
            the file.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[_Location | None, object]] = [(None, content)]
    entries = 0
    while waiting:
        location, part = waiting.pop()
        kind = _wrong_kind(part)
        if kind:
            raise ValueError(f'{path}: {location} {kind}: expected dense tensors of real numbers, saved with values')
        if isinstance(part, Tensor | np.ndarray):
            sizes[id(part)] = part.nbytes
        children = [(_Location(key, location), value) for key, value in _parts(part, path)]
        entries += len(children)
        if entries > MAX_ENTRIES or (children and children[0][0].depth > MAX_DEPTH):
            raise ValueError(
                f'{path} holds more than {MAX_ENTRIES:,} entries, more than {MAX_DEPTH} nested containers, '
                f'or a container that contains itself, at {location}: no training writes such a file; get another one'
            )
        waiting.extend(children)
    if sum(sizes.values()) > max_bytes(Path(path).stat().st_size):
        raise ValueError(
            f'{path} {_describe_size(path, sum(sizes.values()))}: no training writes such tensors; get another file'
        )


class _Location:
    """A location in a checkpoint; its name is composed only when it is printed."""

    def __init__(self, key: object, outer: '_Location | None'):
        self.key, self.outer = key, outer
        self.depth = outer.depth + 1 if outer else 1

    def __str__(self) -> str:
        names, location = [], self
        while location:
            names.append(shown(str(location.key)))
            location = location.outer
        return '.'.join(reversed(names[:SHOWN_DEPTH]))


def _parts(part: object, path: str | os.PathLike) -> Iterable[tuple]:
    """The entries of a container, by key or index."""
    if isinstance(part, list | tuple):
        return enumerate(part)
    if not isinstance(part, Mapping):
        return ()
    for key in part:
        if isinstance(key, str) and not key.isprintable():
            raise ValueError(f'{path}: the key {shown(key)} has unprintable characters: get another file')
    return part.items()


def _wrong_kind(part: object) -> str:
    """A description of an unsupported tensor or array; '' for all others."""
    if isinstance(part, Pending):
        return 'is an object without content'
    if isinstance(part, Unsupported):
        return part.kind
    if not isinstance(part, Tensor):
        return ''
    if part.is_meta:
        return 'is a meta tensor, which has no numbers'
    if part.is_complex():
        return 'is a complex tensor'
    return '' if part.layout == torch.strided and not part.is_quantized else 'is a sparse or quantized tensor'


def _describe_size(path: str | os.PathLike, inside: int) -> str:
    return f'has {Path(path).stat().st_size:,} bytes and would fill {inside:,} in memory'


# --- reading ---


def _read_torch(path: Path, unsafe_unpickle: bool, in_memory: bool):
    try:
        if unsafe_unpickle:
            mmap = zipfile.is_zipfile(path) and not in_memory
            return torch.load(str(path), map_location='cpu', weights_only=False, mmap=mmap)
        return read_torch_file(path, in_memory)
    except (PermissionError, MemoryError):
        raise
    except CodeRefused as error:
        raise ValueError(
            f'{path} would run {shown(error.name)} when it is read, and could run any code: nothing was run. '
            'Get a file that has only weights; only if you trust its author, pass unsafe_unpickle=True '
            '(--unsafe-unpickle)'
        ) from error
    except Exception as error:  # A broken file can raise nearly any exception.
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
        raise OSError(
            f'cannot write {path}: {_cause(error)} ({free_space(str(path.parent))}): free disk space, raise the limit '
            'of file sizes (ulimit -f), or choose another folder'
        ) from error


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
