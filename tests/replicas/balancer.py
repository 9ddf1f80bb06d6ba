"""Balances TCP connections over replicas in turn, and passes over those that are gone. TLS goes through untouched."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

PIECE = 1 << 16


@contextmanager
def balancer(ports: Sequence[int]) -> Iterator[int]:
    """The port of a balancer on loopback, for as long as the context lasts."""
    first = itertools.cycle(range(len(ports)))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near, _ = server.accept()
                    turn = next(first)
                    if far := _connected([*ports[turn:], *ports[:turn]]):
                        for pair in ((near, far), (far, near)):
                            threading.Thread(target=_pass_on, args=pair, daemon=True).start()
                    else:
                        near.close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _connected(ports: Sequence[int]) -> socket.socket | None:
    for port in ports:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port))
    return None


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
