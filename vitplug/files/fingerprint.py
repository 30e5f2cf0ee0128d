"""Fingerprints of files and folders: equal where these hold the same, wherever they lie."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from .folders import names_in

DIGITS = 16
CHUNK = 1 << 20  # bytes


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:  # hashlib.file_digest is not in Python 3.10
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def of_file(path: str | Path) -> str:
    """The first digits of :func:`file_hash`."""
    return file_hash(path)[:DIGITS]


def of_folder(path: str | Path) -> str:
    """A hash of the relative names and the bytes of a folder's files, at any depth."""
    return of_names(f'{name}\0{of_file(os.path.join(path, name))}' for name in names_in(path))


def of_names(names: Iterable[str]) -> str:
    """A hash of names in their order."""
    return hashlib.sha256(b''.join(os.fsencode(name) + b'\0' for name in names)).hexdigest()[:DIGITS]
