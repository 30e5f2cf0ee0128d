"""Addresses in messages."""

from urllib.parse import urlsplit


def shown(address: str) -> str:
    """An address without the password, token or signature that it may hold."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition('@')[2], query='', fragment='').geturl()
