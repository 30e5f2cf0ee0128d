"""Addresses and interfaces of this machine. Standard library only."""

import fcntl
import socket
import struct

SIOCGIFADDR = 0x8915  # Linux: the address of an interface


def split_endpoint(endpoint: str, port: int = 29500) -> tuple[str, int]:
    """Host and port of ``'host:port'`` or ``'host'``.

    Args:
        endpoint: The text.
        port: Where it has none.

    Raises:
        ValueError: If the port is no number from 1 to 65535.
    """
    host, separator, text = endpoint.rpartition(':')
    if not separator:
        return endpoint, port
    if not host or not text.isdecimal() or not 0 < int(text) < 2**16:
        raise ValueError(f'--endpoint {endpoint}: expected HOST or HOST:PORT with a port from 1 to 65535')
    return host, int(text)


def address_of(host: str) -> str:
    """The IPv4 address of a host.

    Raises:
        OSError: If this machine knows no such host.
    """
    try:
        return socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise OSError(
            f'{socket.gethostname()} knows no address of {host} ({error.strerror}): give its IP address as --endpoint, '
            'or add it to /etc/hosts'
        ) from error


def is_own(address: str) -> bool:
    """Whether an address is one of this machine."""
    with socket.socket() as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def address_towards(address: str) -> str:
    """The address by which packets to another one leave this machine; sends none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((address, 9))
        except OSError:
            return ''
        return one.getsockname()[0]


def interface_of(address: str) -> str:
    """Name of the interface with an address; '' if there is none, or the system is not Linux."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(one, SIOCGIFADDR, struct.pack('256s', name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ''


def is_loopback(address: str) -> bool:
    """Whether an address reaches this machine alone."""
    return address.startswith('127.')
