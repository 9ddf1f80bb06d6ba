"""An HTTP proxy that only knows CONNECT, for tests."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class ConnectProxy:
    """A proxy that opens the requested tunnels, counts bytes, and rejects on demand."""

    password: str = ""  # user:password
    status: int = 200  # what it answers with
    asked: list[str] = field(default_factory=list)  # addresses
    bytes_through: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> ConnectProxy:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        try:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            first, *fields = head.decode().split("\r\n")
            target = first.split()[1]
            self.asked.append(target)
            wanted = f"Proxy-Authorization: Basic {base64.b64encode(self.password.encode()).decode()}"
            status = 407 if self.password and wanted not in fields else self.status
            client.sendall(f"HTTP/1.1 {status} so be it\r\n\r\n".encode())
            if status != 200:
                client.close()
                return
            host, _, port = target.rpartition(":")
            server = socket.create_connection((host, int(port)))
            self._open.append(server)
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
            self._pump(client, server)
        except OSError:
            client.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:  # before anybody can have received them
                    self.bytes_through += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
