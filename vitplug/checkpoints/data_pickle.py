"""A pickle interpreter that builds only tensors, arrays and plain containers.

A pickle is a program for a stack machine, and Python's interpreter calls any function that the program names. This one
never looks up a name: it refuses names that are not in `BUILDERS` or `NAMES`. Arguments are checked before memory is
allocated, so a tensor or array cannot have more numbers than the file has bytes for it. A numpy dtype is made from a
checked string, never from the flags in the file. Values of unknown type are not printed, compared or hashed, which
would take exponential time for nested tuples with shared elements.
"""

import pickletools
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from mmap import mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Limits far above those of any training.
MAX_STEPS = 2_000_000  # opcodes of a pickle
MAX_DIMS = 64  # as in torch


class CodeRefused(ValueError):
    """A pickle would run code when it is read.

    Attributes:
        name: Module and name of the function or class.
    """

    def __init__(self, name: str):
        super().__init__(f'reading it would run {name}')
        self.name = name


@dataclass(frozen=True)
class Name:
    """The name of a class, function or dtype in a pickle; it is never looked up."""

    path: str


@dataclass(frozen=True)
class Storage:
    """The memory of tensors.

    Attributes:
        dtype: Type of the numbers.
        memory: The bytes.
    """

    dtype: torch.dtype
    memory: torch.UntypedStorage


@dataclass(frozen=True)
class Unsupported:
    """A tensor of an unsupported kind, such as a sparse tensor.

    Attributes:
        kind: Description for the error message, such as 'is a sparse tensor'.
    """

    kind: str


@dataclass(frozen=True)
class History:
    """A logged quantity as mmengine's `HistoryBuffer` saves it.

    Attributes:
        values: Logged numbers, one-dimensional.
        counts: Number of samples for each value, of the same length.
        max_length: Maximum number of entries that are kept.
    """

    values: np.ndarray
    counts: np.ndarray
    max_length: int


@dataclass
class Pending:
    """An object that a pickle creates empty and fills later.

    Attributes:
        complete: Makes the object from its content; called once.
        places: Its indices in the pickle's memo.
    """

    complete: Callable[[Any], Any] | None
    places: list[int] = field(default_factory=list)


#: Returns the storage for its type, its key in the file and its number of elements.
FindStorage = Callable[[Name, str, int], Storage]


def unpickle(file: bytes | mmap, max_bytes: int, find_storage: FindStorage | None = None) -> Any:
    """Runs one pickle of protocol 2, the protocol of `torch.save`.

    Args:
        file: The pickle, or a memory-mapped file that is read up to the pickle's end.
        max_bytes: Limit for the arguments and results of all calls together: a pickle can reuse one value many times.
        find_storage: Returns the memory of tensors. Without it, tensors are refused.

    Raises:
        CodeRefused: If the pickle names anything that is not in the tables below.
        Exception: Any other, if the pickle is broken.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    used = 0

    def above_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for step, (opcode, value, _) in enumerate(pickletools.genops(file)):
        if step > MAX_STEPS or used > max_bytes:
            raise ValueError(f'a pickle of more than {MAX_STEPS:,} steps, or whose calls use {max_bytes:,} bytes')
        match opcode.name:
            case 'PROTO':
                pass
            case 'STOP':
                return stack.pop()
            case 'MARK':
                marks.append(len(stack))
            case 'NONE' | 'NEWTRUE' | 'NEWFALSE' as name:
                stack.append(CONSTANTS[name])
            case 'EMPTY_DICT' | 'EMPTY_LIST' | 'EMPTY_TUPLE' | 'EMPTY_SET' as name:
                stack.append(CONTAINERS[name]())
            case 'BININT' | 'BININT1' | 'BININT2' | 'LONG1' | 'BINFLOAT' | 'BINUNICODE' | 'SHORT_BINSTRING':
                stack.append(value)
            case 'TUPLE':
                stack.append(tuple(above_mark()))
            case 'TUPLE1' | 'TUPLE2' | 'TUPLE3' as name:
                stack[-int(name[-1]) :] = [tuple(stack[-int(name[-1]) :])]
            case 'APPEND' | 'APPENDS' as name:
                items = above_mark() if name == 'APPENDS' else [stack.pop()]
                _expect(stack[-1], list).extend(items)
            case 'SETITEM' | 'SETITEMS' as name:
                items = above_mark() if name == 'SETITEMS' else [stack.pop() for _ in range(2)][::-1]
                pairs = zip(items[::2], items[1::2], strict=True)
                _expect(stack[-1], dict).update((_plain(key), item) for key, item in pairs)
            case 'BINPUT' | 'LONG_BINPUT':
                memo[value] = stack[-1]
                if isinstance(stack[-1], Pending):
                    stack[-1].places.append(value)
            case 'BINGET' | 'LONG_BINGET':
                stack.append(memo[value])
            case 'GLOBAL':
                stack.append(_name(value.replace(' ', '.', 1)))
            case 'REDUCE' | 'NEWOBJ':
                arguments = _expect(stack.pop(), tuple)
                stack.append(_build(_expect(stack.pop(), Name), *arguments))
                used += _size(arguments, *arguments, stack[-1])
            case 'BUILD':
                state = stack.pop()
                if isinstance(stack[-1], Pending):
                    pending = stack.pop()
                    complete, pending.complete = pending.complete, None
                    stack.append(complete(state))
                    memo |= dict.fromkeys(pending.places, stack[-1])
                    used += _size(stack[-1])
                else:
                    versions = _versions(state)
                    _expect(stack[-1], OrderedDict)._metadata = versions
                    used += _size(versions)
            case 'BINPERSID':
                word, kind, key, _, count, *view = _expect(stack.pop(), tuple)
                if word != 'storage' or any(view) or find_storage is None:
                    raise ValueError('a pickle with persistent ids other than storages')
                stack.append(find_storage(_expect(kind, Name), _expect(key, str), _count(count)))
            case other:
                raise ValueError(f'a pickle with {other}, which torch.save does not write')
    raise ValueError('a pickle without end')


CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False}
CONTAINERS = {'EMPTY_DICT': dict, 'EMPTY_LIST': list, 'EMPTY_TUPLE': tuple, 'EMPTY_SET': set}


def _name(path: str) -> Name | torch.dtype:
    path = path.replace('__builtin__.', 'builtins.')  # the name in protocol 2
    if path in DTYPES:
        return DTYPES[path]
    if path not in BUILDERS and path not in NAMES:
        raise CodeRefused(path)
    return Name(path)


def _build(name: Name, *arguments: Any) -> Any:
    if name.path not in BUILDERS:
        raise CodeRefused(name.path)
    return BUILDERS[name.path](*arguments)


def _size(*values: Any) -> int:
    """Bytes of objects, without the objects they refer to."""
    return sum(value.nbytes if isinstance(value, np.ndarray) else sys.getsizeof(value) for value in values)


# --- checks of arguments ---

LIST = (list, tuple)
PLAIN = (str, int, float, bytes, type(None))


def _expect(value: Any, kinds: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kinds):
        names = ' or '.join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise ValueError(f'a pickle with a {type(value).__name__} instead of {names}')
    return value


def _plain(key: Any) -> Any:
    """A dict key or an element of a set."""
    return _expect(key, PLAIN)


def _count(value: Any) -> int:
    if _expect(value, int) < 0:
        raise ValueError(f'a pickle with {value} instead of a count')
    return value


def _counts(values: Any) -> list[int]:
    if len(_expect(values, LIST)) > MAX_DIMS:
        raise ValueError(f'a pickle with a shape of {len(values)} dimensions')
    return [_count(value) for value in values]


def _versions(attributes: Any) -> OrderedDict:
    """The versions of modules, ``{'backbone.norm': {'version': 2}}``: the attribute ``_metadata`` of a state dict."""
    modules = _expect(_expect(attributes, dict).get('_metadata', {}), dict)
    return OrderedDict(
        (_expect(module, str), {'version': _expect(_expect(entries, dict).get('version'), (int, type(None)))})
        for module, entries in modules.items()
    )


# --- tensors ---

DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
STORAGES = {
    **{f'torch.{name}Storage': dtype for name, dtype in (
        ('Double', torch.float64), ('Float', torch.float32), ('Half', torch.float16), ('BFloat16', torch.bfloat16),
        ('Long', torch.int64), ('Int', torch.int32), ('Short', torch.int16), ('Char', torch.int8),
        ('Byte', torch.uint8), ('Bool', torch.bool), ('ComplexFloat', torch.complex64),
        ('ComplexDouble', torch.complex128), ('QInt8', torch.int8), ('QUInt8', torch.uint8), ('QInt32', torch.int32),
    )},
    'torch.storage.UntypedStorage': torch.uint8,
}  # fmt: skip


def _tensor(storage: Any, offset: int, size: tuple, stride: tuple, *_: Any) -> Tensor:
    """A tensor on an existing storage. Other attributes in the file, such as hooks, are dropped."""
    size, stride = _counts(size), _counts(stride)
    reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if all(size) else 0
    present = len(_expect(storage, Storage).memory) // storage.dtype.itemsize
    if _count(offset) + reach > present:
        raise ValueError(f'a tensor of shape {tuple(size)} in a storage of {present} numbers')
    return torch.empty(0, dtype=storage.dtype).set_(storage.memory, offset, size, stride)


def _tensor_of_type(function: Name, kind: Any, arguments: tuple, *_: Any) -> Any:
    """A parameter or tensor with extra attributes, which are dropped."""
    if _expect(function, Name).path not in TENSORS:
        raise CodeRefused(function.path)
    return TENSORS[function.path](*arguments)


TENSORS: dict[str, Callable] = {
    'torch._utils._rebuild_tensor': _tensor,
    'torch._utils._rebuild_tensor_v2': _tensor,
    'torch._utils._rebuild_parameter': lambda data, *_: _expect(data, (Tensor, Unsupported)),
    'torch._utils._rebuild_parameter_with_state': lambda data, *_: _expect(data, (Tensor, Unsupported)),
    'torch._utils._rebuild_tensor_v3': lambda *_: Unsupported('is a tensor of a dtype that is not supported'),
    'torch._utils._rebuild_sparse_tensor': lambda *_: Unsupported('is a sparse tensor'),
    'torch._utils._rebuild_qtensor': lambda *_: Unsupported('is a quantized tensor'),
    'torch._utils._rebuild_nested_tensor': lambda *_: Unsupported('is a nested tensor'),
    'torch._utils._rebuild_meta_tensor_no_storage': lambda *_: Unsupported('is a meta tensor, which has no numbers'),
}

# --- numpy ---

NUMBERS = re.compile(r'[iuf][1248]|b1|[US]\d{1,6}')


def _dtype(code: Any, state: tuple) -> np.dtype:
    """The dtype of a string such as ``'f8'`` and a byte order. The rest of the state must agree with these two."""
    _, order, *structure, _, _, flags = _expect(state, tuple)
    if any(part is not None for part in structure):
        raise ValueError('a numpy array of structures')
    if not NUMBERS.fullmatch(_expect(code, str)) or _expect(order, str) not in ('<', '>', '|', '='):
        raise ValueError(f'a numpy array of {order!r} {code!r}: expected numbers or strings')
    dtype = np.dtype(order + code)
    if _count(flags) != dtype.flags:
        raise ValueError(f'a numpy array of {code!r} with flags {flags} of another dtype')
    return dtype


def _numbers(dtype: Any, data: Any) -> np.ndarray:
    numbers = np.frombuffer(_expect(data, bytes), _expect(dtype, np.dtype)).copy()
    if dtype.kind == 'U' and np.any(np.frombuffer(data, f'{dtype.byteorder}u4') > sys.maxunicode):
        raise ValueError('a numpy string with invalid code points')
    return numbers


def _array(state: tuple) -> np.ndarray:
    _, shape, dtype, column_first, data = _expect(state, tuple)
    size, numbers = _counts(shape), _numbers(dtype, data)
    if prod(size) != len(numbers):
        raise ValueError(f'a numpy array of shape {size} with {len(numbers)} numbers')
    return numbers.reshape(size, order='F' if column_first else 'C')


def _history(state: dict) -> History:
    values, counts = (_expect(_expect(state, dict)[key], np.ndarray) for key in ('_log_history', '_count_history'))
    if values.ndim != 1 or values.shape != counts.shape or {values.dtype.kind, counts.dtype.kind} - set('iufb'):
        raise ValueError(f'a record of shapes {values.shape} and {counts.shape}: expected two vectors of equal length')
    return History(values, counts, _count(state['max_length']))


# --- the rest ---


def _ordered(pairs: Iterable = ()) -> OrderedDict:
    pairs = (_expect(pair, LIST) for pair in _expect(pairs, LIST))
    return OrderedDict((_plain(key), value) for key, value in pairs)


def _encode(text: Any, encoding: Any = 'latin1') -> bytes:
    """Bytes, which protocol 2 writes as text."""
    if encoding != 'latin1':
        raise ValueError('a pickle with bytes in an encoding other than latin1')
    return _expect(text, str).encode('latin1')


#: Functions that a pickle may call, and their safe replacements.
BUILDERS: dict[str, Callable] = {
    **TENSORS,
    'torch._tensor._rebuild_from_type_v2': _tensor_of_type,
    'torch.Size': lambda size=(): torch.Size(_counts(size)),
    'torch.device': lambda *_: None,
    'torch.serialization._get_layout': lambda *_: None,
    **{f'numpy.{core}.multiarray._reconstruct': lambda *_: Pending(_array) for core in ('core', '_core')},
    **{f'numpy.{core}.multiarray.scalar': lambda *state: _numbers(*state)[0] for core in ('core', '_core')},
    'numpy.dtype': lambda code, *_: Pending(partial(_dtype, code)),
    'mmengine.logging.history_buffer.HistoryBuffer': lambda *_: Pending(_history),
    'collections.OrderedDict': _ordered,
    'collections.Counter': lambda counts={}: Counter(_expect(counts, dict)),
    'builtins.set': lambda items=(): {_plain(item) for item in _expect(items, LIST)},
    'builtins.slice': lambda *ends: slice(*map(_plain, ends)),
    '_codecs.encode': _encode,
    'builtins.bytes': lambda: b'',
    # Irrelevant for the weights: mmengine's records use getattr for statistics, DeiT stores its options.
    'builtins.getattr': lambda *_: None,
    'argparse.Namespace': lambda *_: Pending(lambda state: None),
}
#: Other names that a pickle may contain.
NAMES = {
    *STORAGES,
    'numpy.ndarray',
    'torch.Tensor',
    'torch.nn.parameter.Parameter',
    *(f'torch.per_{unit}' for unit in (
        'tensor_affine', 'tensor_symmetric', 'channel_affine', 'channel_symmetric', 'channel_affine_float_qparams'
    )),
}  # fmt: skip
