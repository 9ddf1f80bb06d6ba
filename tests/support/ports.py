"""Ports for servers that are told their port: nobody else takes one, also not while the server is stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

WORKERS = 32  # at most, of one test run; each has ports of its own
BELOW_EPHEMERAL = range(10_000, 32_000)  # no outgoing connection takes one of these


def _own_ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    mine = BELOW_EPHEMERAL[worker::WORKERS]
    start = os.getpid() % len(mine)  # elsewhere in another run on this machine
    yield from (mine[(start + offset) % len(mine)] for offset in range(len(mine)))


_PORTS = _own_ports()


def free_ports(count: int) -> list[int]:
    """Return that many free ports, none of them twice in one process."""
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]
