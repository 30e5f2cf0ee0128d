"""Downloads checkpoints once, by torch.hub, into a folder for each address: many files are called the same."""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import torch

# torch.hub's convention: `deit_small-cd65a155.pth` has the first digits of the file's SHA-256. A date is not a hash.
HASH_IN_NAME = re.compile(r'-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})\.[^.]+$')


def fetch(address: str) -> Path:
    """The local file of an address that begins with http:// or https://.

    Raises:
        ValueError: If it begins with anything else.
        OSError: If it cannot be downloaded, or does not match the hash in its name.
    """
    parts = urlsplit(address)
    # Without the password, token or signature that an address may hold.
    shown = parts._replace(netloc=parts.netloc.rpartition('@')[2], query='', fragment='').geturl()
    name = Path(unquote(parts.path)).name
    if parts.scheme not in ('http', 'https') or not name:
        raise ValueError(f'checkpoint={shown!r}: expected a path or an address that begins with http:// or https://')
    file = Path(torch.hub.get_dir(), 'checkpoints', hashlib.sha256(address.encode()).hexdigest()[:16], name)
    promised = HASH_IN_NAME.search(name)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(address, str(file), promised and promised[1], progress=False)
        except (OSError, RuntimeError) as error:
            raise OSError(f'{shown} cannot be downloaded: {error}') from error
    return file
