"""gRPC calls written by hand on HTTP/2, which can stop at points where a library would not."""

from __future__ import annotations

import socket
import struct
import time

INFER = "/inference.GRPCInferenceService/ModelInfer"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_END_STREAM, _END_HEADERS, _ACKNOWLEDGEMENT = 1, 4, 1
_WINDOW, _FRAME, _INITIAL_WINDOW = 65535, 16384, 4
_STREAM = 1
_UNREAD = 1 << 20  # bytes to send before the answers are read


class RawCall:
    """One call on one connection; `frames` are the types of the received frames."""

    def __init__(self, port: int, method: str, **headers: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._buffer = b""
        self._stream_window = self._connection_window = _WINDOW
        self.frames: list[int] = []
        self.content = b""  # of the frames with headers
        self.closed = self._acknowledged = False
        self._socket.sendall(PREFACE)
        fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x"}
        fields |= {"content-type": "application/grpc", "te": "trailers"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        self._send(_frame(_HEADERS, _END_HEADERS, _STREAM, block))
        while not (self._acknowledged or self.closed):  # else the server closes the connection after a while
            self.read(1.0)

    def __enter__(self) -> RawCall:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, content: bytes, *, end: bool = False) -> None:
        """Send content as far as the server's windows permit; stop if it ends the call."""
        position = seen = 0
        while position < len(content) and not self.ended:
            room = min(self._stream_window, self._connection_window, _FRAME, len(content) - position)
            if room <= 0:
                self.read(0.05)
                continue
            last = end and position + room == len(content)
            self._send(_frame(_DATA, _END_STREAM if last else 0, _STREAM, content[position : position + room]))
            self._stream_window -= room
            self._connection_window -= room
            position += room
            if position - seen >= _UNREAD:
                seen = position
                self.read(0.0001)

    @property
    def ended(self) -> bool:
        """True if the server has answered, or closed the connection."""
        return self.closed or bool(self.frames)

    def await_end(self, seconds: float = 60.0) -> bool:
        """Wait until the server ends the call; return whether it did."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            self.read(0.05)
        return self.ended

    def await_reset(self, seconds: float) -> bool:
        """Read for a while; return whether the server has cancelled the call."""
        if not (self.closed or _RESET in self.frames):
            self.read(seconds)
        return self.closed or _RESET in self.frames

    def read(self, seconds: float) -> None:
        """Read what the server has sent."""
        self._socket.settimeout(seconds)
        try:
            received = self._socket.recv(1 << 16)
            self.closed = self.closed or not received
        except TimeoutError:
            return
        except OSError:
            self.closed = True
            return
        self._buffer += received
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            head, payload = self._buffer[:9], self._buffer[9 : 9 + size]
            self._buffer = self._buffer[9 + size :]
            self._handle(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            self._connection_window += int.from_bytes(payload, "big") if stream == 0 else 0
            self._stream_window += int.from_bytes(payload, "big") if stream else 0
        elif kind == _SETTINGS and not flags & _ACKNOWLEDGEMENT:
            for number, value in struct.iter_unpack(">HI", payload):
                if number == _INITIAL_WINDOW:
                    self._stream_window += value - _WINDOW
            self._send(_frame(_SETTINGS, _ACKNOWLEDGEMENT, 0, b""))
            self._acknowledged = True
        elif kind == _PING and not flags & _ACKNOWLEDGEMENT:
            self._send(_frame(_PING, _ACKNOWLEDGEMENT, 0, payload))
        elif stream:
            self.frames.append(kind)
            self.content += payload if kind == _HEADERS else b""

    def _send(self, content: bytes) -> None:
        self._socket.settimeout(60)
        try:
            self._socket.sendall(content)
        except OSError:
            self.closed = True


def message_head(size: int, *, compressed: bool = False) -> bytes:
    """Return the five bytes before a message."""
    return struct.pack(">BI", compressed, size)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"")


def _text(value: str) -> bytes:
    """Encode a string for HPACK, shorter than 127 bytes."""
    return bytes([len(value)]) + value.encode()
