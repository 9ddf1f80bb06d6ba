from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

from starlette.applications import Starlette

from moonfed.serving.http.connection import BoundedProtocol
from moonfed.serving.http.connections import Connections
from moonfed.serving.listeners import bind_socket, serve_http
from moonfed.serving.requests.limits import RequestLimits
from moonfed.serving.server_settings import ServerSettings


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Nagle's algorithm would delay an answer's body until the client has acknowledged its headers."""

    async def accepted() -> int:
        options = asyncio.get_running_loop().create_future()

        class Recorder(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                sock: socket.socket = transport.get_extra_info("socket")
                options.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        with bind_socket("http_port", "127.0.0.1", 0) as listening:
            async with await asyncio.get_running_loop().create_server(Recorder, sock=listening):
                with socket.create_connection(listening.getsockname()):
                    found: int = await options
        return found

    assert asyncio.run(accepted())


def test_few_connections_are_accepted_before_the_first_of_them_can_be_rejected() -> None:
    """Otherwise a burst of connections would use up the files, however low the limit on connections is."""

    def open_files() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    async def first_accepted() -> int:
        settings = ServerSettings(repository=Path())
        shared = Connections[BoundedProtocol](RequestLimits(), limit=10, max_body_bytes=1000)
        with bind_socket("http_port", "127.0.0.1", 0) as listening, ExitStack() as stack:
            async with serve_http(Starlette(), listening, settings, shared):
                address = listening.getsockname()
                for _ in range(200):  # the kernel holds them, as it must
                    stack.enter_context(socket.create_connection(address, timeout=10))
                before = open_files()
                while open_files() == before:
                    await asyncio.sleep(0)
                return open_files() - before

    assert asyncio.run(first_accepted()) <= 32
