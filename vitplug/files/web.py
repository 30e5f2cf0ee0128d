"""Files of a data set behind http addresses: errors name the address, which urllib leaves out."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from mmengine.fileio import HTTPBackend, register_backend


class NamingHTTPBackend(HTTPBackend):
    """mmengine's backend, whose errors begin with the address.

    Raises:
        OSError: if the server cannot be reached, or refuses.
    """

    def get(self, filepath: str) -> bytes:
        with _errors_with(filepath):
            return super().get(filepath)

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        with _errors_with(filepath):
            return super().get_text(filepath, encoding)


def name_addresses() -> None:
    """Makes mmengine read http addresses in this process through `NamingHTTPBackend`."""
    register_backend('http', NamingHTTPBackend, force=True, prefixes=['http', 'https'])


def shown(address: str) -> str:
    """An address without the password, token or signature that it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition('@')[2], query='', fragment='').geturl()


@contextmanager
def _errors_with(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f'{shown(address)} cannot be read: {error}') from error
