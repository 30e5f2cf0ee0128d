"""Downloads checkpoints from http addresses, atomically, into a cache by full address."""

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

from vitplug.files.fingerprint import file_hash
from vitplug.files.web import shown

TIMEOUT = 30  # seconds without a byte
MIN_SPEED = 10_000  # bytes per second, on average after that time
MAX_BYTES = 64 * 2**30  # bytes
CHUNK = 2**20  # bytes

DIGITS = 16  # of a SHA-256, in names of files and folders
# torch.hub's convention: `deit_small-cd65a155.pth` has the first digits of the file's SHA-256. A date is not a hash.
HASH_IN_NAME = re.compile(r'-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})\.[^.]+$')


def fetch(address: str) -> Path:
    """The local file of an address; http and https addresses are downloaded once.

    Downloads are cached in torch.hub's folder by the full address, since many files are called `model.safetensors`. The
    name of the cached file has a hash of its content, which is checked at every use.

    Raises:
        ValueError: If the address has an unsupported scheme, or if the file is truncated, too large, not a checkpoint,
            or does not match the hash in its name.
        OSError: If the server cannot be reached or the file cannot be written.
    """
    parts = urlsplit(address)
    name = Path(unquote(parts.path)).name
    if parts.scheme == 'file' and parts.netloc in ('', 'localhost'):
        return Path(unquote(parts.path))
    if parts.scheme not in ('http', 'https') or not parts.netloc or not name:
        raise ValueError(
            f'checkpoint={shown(address)!r}: expected a path or an address that begins with http:// or https://; '
            'download the file with another program and give its path'
        )
    folder = Path(torch.hub.get_dir(), 'checkpoints', hashlib.sha256(address.encode()).hexdigest()[:DIGITS])
    for path in sorted(folder.glob('*-*')):
        if path.stem.endswith(f'-{file_hash(path)[:DIGITS]}'):
            return path
    with _errors_with(address):
        return _download(address, folder, name)


@contextmanager
def _errors_with(address: str) -> Iterator[None]:
    """Adds the address to every error of a download."""
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
            # Some servers refuse urllib's default user agent.
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
    """Copies a response and checks its length.

    Raises:
        ValueError: If it is too large or truncated.
        TimeoutError: If it is too slow.
    """
    promised = response.headers.get('Content-Length', '')
    expected = int(promised) if promised.isdecimal() else None
    _check_size(expected or 0)
    received, begin = 0, time.monotonic()
    while chunk := response.read1(CHUNK):
        received += len(chunk)
        _check_size(received)
        if received < MIN_SPEED * (time.monotonic() - begin - TIMEOUT):
            raise TimeoutError(f'slower than {MIN_SPEED:,} bytes per second')
        file.write(chunk)
    if expected is not None and received != expected:
        raise ValueError(f'received {received:,} of {expected:,} bytes: try again')


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ValueError(f'it has more than {MAX_BYTES:,} bytes')


def _check_content(path: Path, name: str, digest: str) -> None:
    """Checks a download before it is cached.

    Raises:
        ValueError: If it is empty, truncated, not a checkpoint, or does not match the hash in its name.
    """
    promised = HASH_IN_NAME.search(name)
    if promised and not digest.startswith(promised[1]):
        raise ValueError(f'its SHA-256 begins with {digest[:8]}, but its name has {promised[1]}: download it again')
    if path.stat().st_size == 0:
        raise ValueError('it is empty')
    if name.endswith('.safetensors'):
        return _check_safetensors(path)
    with open(path, 'rb') as file:
        begin = file.read(40)
    if not zipfile.is_zipfile(path) and not begin.startswith(b'\x80'):  # torch.save before it wrote zip archives
        raise ValueError(
            f'it is truncated or no checkpoint, and begins with {begin!r}: if it needs a login, download the file '
            'in a browser and give its path'
        )


def _check_safetensors(path: Path) -> None:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        return  # reported when the file is read
    try:
        with safe_open(path, framework='pt'):
            pass
    except SafetensorError as error:
        raise ValueError(f'it is truncated or no safetensors file ({error})') from error
