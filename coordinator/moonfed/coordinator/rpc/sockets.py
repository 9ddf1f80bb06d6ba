"""The connections that this process has accepted, found among its file descriptors, because gRPC does not list them."""

from __future__ import annotations

import ipaddress
import os
import re
import resource
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from urllib.parse import unquote

Peer = tuple[str, int]  # address and port
MAX_SCANNED = 1 << 16  # assumed number of file descriptors if they cannot be listed
UNLIMITED = 1 << 20
_PEER = re.compile(r"ipv[46]:\[?([^\]]+?)\]?:(\d+)")


def parse_peer(text: str) -> Peer | None:
    """Return the address and port of a gRPC peer, such as `ipv4:10.0.0.7:51234`; None if it has none."""
    found = _PEER.fullmatch(unquote(text))
    return (_plain(found[1]), int(found[2])) if found else None


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the /64 network of an IPv6 address, since one host can use all of it; IPv4 addresses are unchanged."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.strip("[]").partition("%")[0], 64), strict=False))
    except ValueError:
        return address


def accepted(ports: Collection[int]) -> tuple[dict[Peer, int], int]:
    """Return the descriptors of the accepted connections to these ports, by peer, and the number of all open files."""
    found: dict[Peer, int] = {}
    number = 0
    for file in _open_files():
        number += 1
        with suppress(OSError), _borrowed(file) as connection:
            if peer := _peer(connection, ports):
                found[peer] = file
    return found, number


def open_files() -> int:
    """Return the number of all open files."""
    return len(list(_open_files()))


def shut_down(file: int, peer: Peer, ports: Collection[int]) -> None:
    """Shut a connection down, which gRPC notices at once, unless its descriptor has been reused."""
    with suppress(OSError), _borrowed(file) as connection:
        if _peer(connection, ports) == peer:
            connection.shutdown(socket.SHUT_RDWR)


def raise_file_limit() -> None:
    """Raise this process's limit on open files to the hard limit."""
    with suppress(ValueError, OSError):  # macOS permits less than it reports
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit() -> int:
    """Return how many files this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


def _open_files() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - faster
    except OSError:  # no descriptor is left to list them with
        return range(min(file_limit(), MAX_SCANNED))


@contextmanager
def _borrowed(file: int) -> Iterator[socket.socket]:
    """Use one of gRPC's descriptors as a socket, without closing it; OSError if it is not one."""
    connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=file)
    try:
        yield connection
    finally:
        connection.detach()


def _peer(connection: socket.socket, ports: Collection[int]) -> Peer | None:
    """Return the peer of a connection to one of the ports; None for other sockets, OSError if there is none."""
    own = connection.getsockname()
    if len(own) < 2 or own[1] not in ports:
        return None
    peer = connection.getpeername()
    return _plain(peer[0]), peer[1]


@lru_cache(maxsize=4096)
def _plain(address: str) -> str:
    """Return an address in canonical form: an IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
