"""Reads the two file formats of `torch.save` without running code. Unlike `torch.load`, it checks the sizes in a file.

Since torch 1.6 a file is an uncompressed zip archive with the entries::

    NAME/data.pkl       the content; each tensor names its storage by a key
    NAME/data/KEY       the bytes of a storage
    NAME/byteorder      'little' or 'big'; not in old files

Older files are a sequence of pickles (magic number, version, machine, content, keys of storages). For each key, the
number of elements as 8 bytes and the elements follow. The tar files of torch before 0.4 are refused.
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
TAR = (257, b'ustar')  # offset and bytes of a tar file's magic number


# Largest in-memory size as a multiple of the file size (tensors may share storage).
MAX_EXPANSION = 10
ALWAYS_ALLOWED = 64 * 2**20  # bytes


def max_bytes(size: int) -> int:
    """Largest in-memory size of a file's content, in bytes.

    Args:
        size: Size of the file in bytes.
    """
    return ALWAYS_ALLOWED + MAX_EXPANSION * size


def read_torch_file(path: Path, in_memory: bool = False) -> Any:
    """Reads a file of `torch.save`.

    Args:
        path: The file.
        in_memory: If True, tensors are copied into memory. Otherwise the tensors of a zip archive are mapped, and the
            file must not change while they are used.

    Raises:
        CodeRefused: If reading it would run code.
        OSError: If it cannot be read.
        Exception: Any other, if it is broken.
    """
    if zipfile.is_zipfile(path):
        return _read_archive(path, in_memory)
    # Mapped: an open file would allocate 3 GB for a string that claims 3 GB, before it reaches the end of the file.
    with open(path, 'rb') as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as file:
        if file[TAR[0] : TAR[0] + len(TAR[1])] == TAR[1]:
            raise ValueError('a tar file of a torch before 0.4: save it again with a later torch')
        return _read_legacy(file)


def _read_archive(path: Path, in_memory: bool) -> Any:
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        programs = [name for name in entries if name.endswith('/data.pkl') and name.count('/') == 1]
        if len(programs) != 1 or len(entries) != len(archive.infolist()):
            raise ValueError(f'an archive with {len(programs)} entries data.pkl, or with two entries of one name')
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError('a compressed archive')
        folder = programs[0].removesuffix('data.pkl')
        order = archive.read(f'{folder}byteorder').decode() if f'{folder}byteorder' in entries else sys.byteorder
        _check_byte_order(order)
        program = archive.read(programs[0])
    size = path.stat().st_size
    whole = torch.UntypedStorage.from_file(str(path), False, size)
    storages: dict[str, torch.UntypedStorage] = {}

    def find_storage(kind: Name, key: str, count: int) -> Storage:
        dtype = STORAGES[kind.path]
        if key not in storages:
            entry = entries[f'{folder}data/{key}']
            start = _start_of(entry, whole)
            if start + entry.file_size > size:
                raise ValueError(f'an entry {entry.filename!r} that reaches beyond the end')
            part = whole[start : start + entry.file_size] if entry.file_size else torch.UntypedStorage(0)
            _check_crc(part, entry)
            storages[key] = part.clone() if in_memory else part
        if count * dtype.itemsize > len(storages[key]):
            raise ValueError(f'a storage of {count:,} numbers in {len(storages[key]):,} bytes')
        return Storage(dtype, storages[key])

    return unpickle(program, max_bytes(size), find_storage)


def _start_of(entry: zipfile.ZipInfo, whole: torch.UntypedStorage) -> int:
    """Offset of an entry's bytes, after its header of variable length."""
    header = bytes(whole[entry.header_offset : entry.header_offset + 30])
    return entry.header_offset + 30 + sum(struct.unpack('<HH', header[26:]))


def _check_crc(part: torch.UntypedStorage, entry: zipfile.ZipInfo) -> None:
    """Checks an entry's CRC, which torch writes but does not check."""
    crc = zlib.crc32(torch.empty(0, dtype=torch.uint8).set_(part).numpy())
    if crc != entry.CRC:
        raise ValueError(f'an entry {entry.filename!r} that does not match its check sum')


def _read_legacy(file: mmap) -> Any:
    size = len(file)
    magic, version, machine = (unpickle(file, max_bytes(size)) for _ in range(3))
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError('not a file of torch.save')
    _check_byte_order('little' if machine['little_endian'] else 'big')
    storages: dict[str, Storage] = {}
    total = 0

    def find_storage(kind: Name, key: str, count: int) -> Storage:
        nonlocal total
        if key not in storages:
            dtype = STORAGES[kind.path]
            total += count * dtype.itemsize
            if total > size:
                raise ValueError(f'storages of {total:,} bytes in a file of {size:,}')
            storages[key] = Storage(dtype, torch.UntypedStorage(count * dtype.itemsize))
        return storages[key]

    content = unpickle(file, max_bytes(size), find_storage)
    keys = unpickle(file, max_bytes(size))
    if not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise ValueError('a file whose storages are not the ones its tensors name')
    for key in keys:
        _fill(storages[key], file)
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
        raise ValueError(f'written with the byte order {order!r}: save it again on a machine with {sys.byteorder!r}')
