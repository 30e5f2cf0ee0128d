"""Checkpoints behind http addresses: fetched whole or not at all, and kept by the whole address."""

import hashlib
import http.client
import os
import re
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import torch

from vitplug.files.web import shown

TIMEOUT = 30  # seconds without a byte
SLOWEST = 10_000  # bytes per second, on average after that time
LARGEST = 64 * 2**30  # bytes
CHUNK = 2**20  # bytes

DIGITS = 16  # of a SHA-256, in names of files and folders
# As torch.hub has it: `deit_small-cd65a155.pth` promises how the file's SHA-256 begins. A date promises nothing.
PROMISED = re.compile(r'-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})\.[^.]+$')


def fetch(address: str) -> Path:
    """The file behind an address; what http or https names is downloaded once.

    A download is kept in torch.hub's folder by the whole address, since many files are called `model.safetensors`, and
    its name has a hash of its content, which is checked at every use.

    Raises:
        ValueError: If the address is none that can be downloaded, or what it gives is cut short, too large, no
            checkpoint, or not what its name promises.
        OSError: If the server cannot be reached or the file not be written.
    """
    parts = urlsplit(address)
    name = Path(unquote(parts.path)).name
    if parts.scheme == 'file' and parts.netloc in ('', 'localhost'):
        return Path(unquote(parts.path))
    if parts.scheme not in ('http', 'https') or not parts.netloc or not name:
        raise ValueError(
            f'checkpoint={shown(address)!r}: expected a path or an address that begins with http:// or https://; '
            'download the file by other means and give its path'
        )
    folder = Path(torch.hub.get_dir(), 'checkpoints', hashlib.sha256(address.encode()).hexdigest()[:DIGITS])
    for path in sorted(folder.glob('*-*')):
        if path.stem.endswith(f'-{file_hash(path)[:DIGITS]}'):
            return path
    with _errors_with(address):
        return _download(address, folder, name)


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


@contextmanager
def _errors_with(address: str) -> Iterator[None]:
    """Puts the address in front of every error of a download."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else OSError
        reason = f'{type(error).__name__}: {error}' if isinstance(error, http.client.HTTPException) else str(error)
        raise kind(f'{shown(address)} cannot be downloaded: {reason or type(error).__name__}') from error


def _download(address: str, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix='.', suffix='.part', delete=False) as file:
        part = Path(file.name)
        try:
            # Some servers refuse the name that urllib gives itself.
            request = urllib.request.Request(address, headers={'User-Agent': 'vitplug'})
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                _copy(response, file)
            file.flush()
            os.fsync(file.fileno())
            digest = file_hash(part)
            _check_content(part, name, digest)
            path = folder / f'{Path(name).stem}-{digest[:DIGITS]}{Path(name).suffix}'
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def _copy(response: http.client.HTTPResponse, file: BinaryIO) -> None:
    """Copies a response, whose length must be what it says.

    Raises:
        ValueError: If it is too large or cut short.
        TimeoutError: If it is too slow.
    """
    promised = response.headers.get('Content-Length', '')
    expected = int(promised) if promised.isdecimal() else None
    _check_size(expected or 0)
    received, begin = 0, time.monotonic()
    while chunk := response.read1(CHUNK):
        received += len(chunk)
        _check_size(received)
        if received < SLOWEST * (time.monotonic() - begin - TIMEOUT):
            raise TimeoutError(f'fewer than {SLOWEST:,} bytes per second came')
        file.write(chunk)
    if expected is not None and received != expected:
        raise ValueError(f'{received:,} of {expected:,} bytes came: try again')


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise ValueError(f'it has more than {LARGEST:,} bytes')


def _check_content(path: Path, name: str, digest: str) -> None:
    """Checks what came before it is kept.

    Raises:
        ValueError: If it is empty, cut short, of another kind, or not what its name promises.
    """
    promised = PROMISED.search(name)
    if promised and not digest.startswith(promised[1]):
        raise ValueError(f'its SHA-256 begins with {digest[:8]}, and its name promises {promised[1]}')
    if path.stat().st_size == 0:
        raise ValueError('it is empty')
    if name.endswith('.safetensors'):
        return _check_safetensors(path)
    with open(path, 'rb') as file:
        begin = file.read(40)
    if not zipfile.is_zipfile(path) and not begin.startswith(b'\x80'):  # what torch.save wrote before there were zips
        raise ValueError(
            f'it is cut short or no checkpoint, and begins with {begin!r}: if a login is needed, download the file in '
            'a browser and give its path'
        )


def _check_safetensors(path: Path) -> None:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        return  # reading says so
    try:
        with safe_open(path, framework='pt'):
            pass
    except SafetensorError as error:
        raise ValueError(f'it is cut short or no safetensors file ({error})') from error
