"""A balancer of TCP connections over two replicas: HAProxy with deploy's configuration, or a few lines of our own."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_ports

PIECE = 1 << 16


CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


@contextmanager
def balancer(ports: Sequence[int], directory: Path) -> Iterator[int]:
    """The port of a balancer on loopback, for as long as the context lasts."""
    with haproxy(HAPROXY, ports, directory) if HAPROXY else round_robin(ports) as port:
        yield port


@contextmanager
def haproxy(program: str, ports: Sequence[int], directory: Path) -> Iterator[int]:
    """The configuration that we recommend, with these ports in place of its machines."""
    port, enrolment = free_ports(2)
    places = {
        ":7443\n    server one 10.0.0.11:7443\n    server two 10.0.0.12:7443": (
            f"127.0.0.1:{port}\n    server one 127.0.0.1:{ports[0]}\n    server two 127.0.0.1:{ports[1]}"
        ),
        "maxconn 20000": "maxconn 200",  # here nobody has allowed it more open files
        "bind :7444": f"bind 127.0.0.1:{enrolment}",
    }
    text = CONFIGURATION.read_text()
    for there, here in places.items():
        assert there in text
        text = text.replace(there, here)
    (directory / "haproxy.cfg").write_text(text)
    process = subprocess.Popen([program, "-db", "-f", str(directory / "haproxy.cfg")])
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def round_robin(ports: Sequence[int]) -> Iterator[int]:
    """Rotate over the replicas, skipping unreachable ones."""
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
