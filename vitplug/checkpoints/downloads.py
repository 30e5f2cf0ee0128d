"""Downloads checkpoints once, by torch.hub, into a folder for each address: many files are called the same."""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import torch

# torch.hub's convention: `deit_small-cd65a155.pth` has the first digits of the file's SHA-256. A date is not a hash.
HASH_IN_NAME = re.compile(r'-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})\.[^.]+$')


def fetch(address: str) -> Path:
    """The local file of an address that begins with file://, http:// or https://.

    Raises:
        ValueError: If it begins with anything else.
        OSError: If it cannot be downloaded, or does not match the hash in its name.
    """
    parts = urlsplit(address)
    name = Path(unquote(parts.path)).name
    if parts.scheme == 'file':
        return Path(unquote(parts.path))
    if parts.scheme not in ('http', 'https') or not name:
        raise ValueError(
            f'checkpoint={shown(address)!r}: expected a path or an address that begins with http:// or https://; '
            'download the file with another program and give its path'
        )
    folder = Path(torch.hub.get_dir(), 'checkpoints', hashlib.sha256(address.encode()).hexdigest()[:16])
    promised = HASH_IN_NAME.search(name)
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(address, str(folder / name), promised and promised[1], progress=False)
        except (OSError, RuntimeError) as error:
            raise OSError(f'{shown(address)} cannot be downloaded: {error}') from error
    return folder / name


def shown(address: str) -> str:
    """An address without the password, token or signature that it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition('@')[2], query='', fragment='').geturl()
