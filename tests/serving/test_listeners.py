from __future__ import annotations

import asyncio
import socket

from moonfed.serving.listeners import bind_socket


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
