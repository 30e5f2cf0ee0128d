"""The two file formats of `torch.save`, read without running code: `torch.load` trusts the sizes in a file.

Since torch 1.6 a file is a zip archive, packed by nothing, with the entries::

    NAME/data.pkl       the content; each tensor names its storage by a key
    NAME/data/KEY       the bytes of a storage
    NAME/byteorder      'little' or 'big'; not in old files

Before, it was a row of pickles (magic number, version, machine, content, keys of storages) and then, for each key,
the number of elements as 8 bytes and the elements. What `torch.save` wrote before torch 0.4, tar files, is refused.
"""

import struct
import sys
import zipfile
import zlib
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import torch

from .data_pickle import STORAGES, Name, Storage, unpickle

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
TAR = (257, b'ustar')  # where a tar file says so, and what


# How many times its file a checkpoint may fill in memory: tensors may share what they hold, but not for ever.
MOST_SHARED = 10
ALWAYS_ALLOWED = 64 * 2**20  # bytes


def most_bytes(size: int) -> int:
    """Bytes that the content of a file may fill.

    Args:
        size: Bytes of the file.
    """
    return ALWAYS_ALLOWED + MOST_SHARED * size


def read_torch_file(path: Path, in_memory: bool = False) -> Any:
    """Reads a file of `torch.save`.

    Args:
        path: The file.
        in_memory: Whether tensors are read at once. Otherwise those of a zip archive are read when they are used, and
            must not change on the disk until then.

    Raises:
        CodeRefused: If it would have to run code.
        OSError: If it cannot be read.
        Exception: Any other, if it is broken.
    """
    if zipfile.is_zipfile(path):
        return _read_archive(path, in_memory)
    # Mapped: to read a text of 3 GB, as a file may say, from an open file allocates 3 GB before it sees the end.
    with open(path, 'rb') as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as file:
        if file[TAR[0] : TAR[0] + len(TAR[1])] == TAR[1]:
            raise ValueError('a tar file of a torch before 0.4: save it anew with a later one')
        return _read_row_of_pickles(file)


def _read_archive(path: Path, in_memory: bool) -> Any:
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        programs = [name for name in entries if name.endswith('/data.pkl') and name.count('/') == 1]
        if len(programs) != 1 or len(entries) != len(archive.infolist()):
            raise ValueError(f'an archive with {len(programs)} entries data.pkl, or with two entries of one name')
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError('a packed archive')
        folder = programs[0].removesuffix('data.pkl')
        order = archive.read(f'{folder}byteorder').decode() if f'{folder}byteorder' in entries else sys.byteorder
        _check_byte_order(order)
        program = archive.read(programs[0])
    size = path.stat().st_size
    whole = torch.UntypedStorage.from_file(str(path), False, size)
    found: dict[str, torch.UntypedStorage] = {}

    def find_storage(kind: Name, key: str, count: int) -> Storage:
        dtype = STORAGES[kind.path]
        if key not in found:
            entry = entries[f'{folder}data/{key}']
            start = _start_of(entry, whole)
            if start + entry.file_size > size:
                raise ValueError(f'an entry {entry.filename!r} that reaches beyond the end')
            part = whole[start : start + entry.file_size] if entry.file_size else torch.UntypedStorage(0)
            _check_sum(part, entry)
            found[key] = part.clone() if in_memory else part
        if count * dtype.itemsize > len(found[key]):
            raise ValueError(f'a storage of {count:,} numbers in {len(found[key]):,} bytes')
        return Storage(dtype, found[key])

    return unpickle(program, most_bytes(size), find_storage)


def _start_of(entry: zipfile.ZipInfo, whole: torch.UntypedStorage) -> int:
    """Where the bytes of an entry begin: its own header, of variable length, stands before them."""
    header = bytes(whole[entry.header_offset : entry.header_offset + 30])
    return entry.header_offset + 30 + sum(struct.unpack('<HH', header[26:]))


def _check_sum(part: torch.UntypedStorage, entry: zipfile.ZipInfo) -> None:
    """Compares an entry with its check sum, which torch writes and does not look at."""
    found = zlib.crc32(torch.empty(0, dtype=torch.uint8).set_(part).numpy())
    if found != entry.CRC:
        raise ValueError(f'an entry {entry.filename!r} that does not agree with its check sum')


def _read_row_of_pickles(file: mmap) -> Any:
    size = len(file)
    magic, version, machine = (unpickle(file, most_bytes(size)) for _ in range(3))
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError('no file of torch.save')
    _check_byte_order('little' if machine['little_endian'] else 'big')
    found: dict[str, Storage] = {}
    total = 0

    def find_storage(kind: Name, key: str, count: int) -> Storage:
        nonlocal total
        if key not in found:
            dtype = STORAGES[kind.path]
            total += count * dtype.itemsize
            if total > size:
                raise ValueError(f'storages of {total:,} bytes in a file of {size:,}')
            found[key] = Storage(dtype, torch.UntypedStorage(count * dtype.itemsize))
        return found[key]

    content = unpickle(file, most_bytes(size), find_storage)
    keys = unpickle(file, most_bytes(size))
    if not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(found):
        raise ValueError('a file with other storages than its tensors name')
    for key in keys:
        _fill(found[key], file)
    return content


def _fill(storage: Storage, file: mmap) -> None:
    (count,) = struct.unpack('<q', file.read(8))
    data = bytearray(file.read(len(storage.memory)))
    if count * storage.dtype.itemsize != len(storage.memory) or len(data) != len(storage.memory):
        raise ValueError(f'a storage of {count} numbers where {len(storage.memory)} bytes were expected')
    if data:
        torch.empty(0, dtype=torch.uint8).set_(storage.memory).copy_(torch.frombuffer(data, dtype=torch.uint8))


def _check_byte_order(order: str) -> None:
    if order != sys.byteorder:
        raise ValueError(f'written on a machine of the byte order {order!r}: save it anew on one like this')
